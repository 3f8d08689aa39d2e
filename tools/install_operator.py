"""Build the images, bring them to the cluster of kubectl's context, and install the operator there.

    make install                                  a cluster of kind or minikube
    make install ARGS="--registry HOST/PATH"      any other: the images are pushed there

It asks nothing and can be run again: Helm upgrades what is installed. Experiments are allowed.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from tools import build_images  # noqa: E402 - a script sees tools/ only

VALUES = {
    "image": "operator",
    "images.broker": "broker",
    "images.namesrv": "broker",
    "images.tools": "broker",
    "images.chaos": "chaos",
    "images.spark": "analytics",
}
"""Values of the chart that name an image, and the target that makes it."""


class InstallError(Exception):
    """What is missing; the message is the one line to show."""


def context() -> str:
    """Return the name of kubectl's context."""
    done = subprocess.run(
        ["kubectl", "config", "current-context"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise InstallError("kubectl has no context: kubectl config use-context NAME")
    return done.stdout.strip()


def steps(builder: str, name: str, registry: str, namespace: str) -> Iterator[list[str]]:
    """Yield the commands behind the build.

    Args:
        name: Of kubectl's context: kind's begins with ``kind-``.
        registry: Where images are pushed to; empty for kind and minikube.

    Raises:
        InstallError: The cluster is another one, and no registry is given.
    """
    tag = build_images.version()
    images = [f"failback/{target}:{tag}" for target in build_images.TARGETS]
    values = ["chaos.enabled=true"]
    if registry:
        for image in images:
            yield [builder, "tag", image, f"{registry}/{image}"]
            yield [builder, "push", f"{registry}/{image}"]
        for value, target in VALUES.items():
            key = f"{value}.repository" if value == "image" else value
            values.append(f"{key}={registry}/failback/{target}")
    elif name.startswith("kind-"):
        yield ["kind", "load", "docker-image", *images, "--name", name.removeprefix("kind-")]
    elif name == "minikube":
        yield from (["minikube", "image", "load", image] for image in images)
    else:
        raise InstallError(
            f"{name} is no cluster of kind or minikube: say where its nodes get images from, as"
            ' ARGS="--registry registry.example.com/team"'
        )
    where = ["--namespace", namespace, "--create-namespace", "--wait"]
    settings = [word for value in values for word in ("--set", value)]
    yield ["helm", "upgrade", "--install", "failback", "charts/failback", *where, *settings]


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--registry", default="", metavar="HOST/PATH", help="push the images there")
    parser.add_argument("--namespace", default="failback", help="of the operator")
    parser.add_argument("--builder", choices=build_images.BUILDERS, help="the first that works")
    parser.add_argument("--any-base", action="store_true", help="build on a base without a digest")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(argv)
    try:
        if missing := [name for name in ("kubectl", "helm") if shutil.which(name) is None]:
            raise InstallError(f"{' and '.join(missing)} must be installed")
        name = context()
        builder = build_images.choose(options.builder)
        found = list(steps(builder, name, options.registry.rstrip("/"), options.namespace))
    except (InstallError, build_images.BuildError) as error:
        print(f"install: {error}", file=sys.stderr)
        return 2
    build = [sys.executable, str(ROOT / "tools" / "build_images.py"), "--builder", builder]
    build += ["--any-base"] if options.any_base else []
    for command in (build, *found):
        print(f"+ {shlex.join(command)}", flush=True)
        if (code := subprocess.run(command, cwd=ROOT, check=False).returncode) != 0:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
