"""Build the images with docker, podman or buildah, whichever works here: what ``make images`` does.

Tags are ``failback/TARGET:VERSION``. Times in the images are those of the last commit, so that two
builds of one commit are equal where the builder can rewrite time stamps. Each image has a list of
its Python packages, /opt/failback/sbom.cdx.json, which is written to dist/ as well.
"""

from __future__ import annotations

import argparse
import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGETS = ("broker", "operator", "chaos", "analytics")
BUILDERS = ("docker", "podman", "buildah")
BASES = ROOT / "tools" / "base_images.toml"
DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")
SBOM = "sbom.cdx.json"


class BuildError(Exception):
    """What is missing; the message is the one line to show."""


def problem_of(builder: str) -> str:
    """Return why ``builder`` cannot build: not installed or, of docker, no daemon. Else nothing."""
    if shutil.which(builder) is None:
        return "is not installed"
    question = [builder, "info"] if builder != "buildah" else [builder, "--version"]
    done = subprocess.run(question, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return ""
    said = done.stderr.strip().splitlines()
    return f"does not work: {said[-1]}" if said else f"does not work: {' '.join(question)} failed"


def choose(wanted: str | None) -> str:
    """Return the builder to use."""
    problems = {}
    for builder in (wanted,) if wanted else BUILDERS:
        problem = problem_of(builder)
        if not problem:
            return builder
        problems[builder] = problem
    raise BuildError("; ".join(f"{builder} {problem}" for builder, problem in problems.items()))


@functools.cache
def git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def version() -> str:
    with (ROOT / "pyproject.toml").open("rb") as file:
        return str(tomllib.load(file)["project"]["version"])


def source_date() -> str:
    """Return the time of the last commit, in seconds."""
    return os.environ.get("SOURCE_DATE_EPOCH") or git("log", "-1", "--format=%ct") or "1577836800"


def base_image(options: argparse.Namespace) -> str:
    """Return the image to start from.

    Raises:
        BuildError: It has no digest, and that is not allowed.
    """
    where = "--base" if options.base else BASES.relative_to(ROOT)
    base = str(options.base or tomllib.loads(BASES.read_text(encoding="utf-8"))["python"])
    if options.any_base or DIGEST.search(base):
        return base
    raise BuildError(
        f"{base} of {where} has no digest: its tag may name another image tomorrow. Write"
        " NAME:TAG@sha256:DIGEST there, or allow it with --any-base"
    )


def command(
    builder: str, target: str, options: argparse.Namespace, out: Path | None = None
) -> list[str]:
    """Return the command that builds one target: an image, or with ``out`` files into a folder."""
    arguments = {
        "SOURCE_DATE_EPOCH": source_date(),
        "VERSION": version(),
        "REVISION": git("rev-parse", "HEAD") or "unknown",
        "PYTHON_IMAGE": base_image(options),
    }
    tag = f"{options.repository}/{target}:{version()}"
    words = {
        "docker": ["docker", "build"],
        "podman": ["podman", "build", "--format", "docker", "--layers"],
        "buildah": ["buildah", *options.storage, "bud", "--format", "docker", "--layers"],
    }[builder]
    words = [*words, *options.pass_on, "--file", "Dockerfile", "--target", target]
    words += ["--output", f"type=local,dest={out}"] if out else ["--tag", tag]
    if builder != "docker":
        words += ["--timestamp", arguments["SOURCE_DATE_EPOCH"]]
    for name, value in arguments.items():
        words += ["--build-arg", f"{name}={value}"]
    return [*words, "."]


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}")
    parser.add_argument("--builder", choices=BUILDERS, help="default: the first that works")
    parser.add_argument("--base", help="base image instead of that of tools/base_images.toml")
    parser.add_argument("--any-base", action="store_true", help="also a base without a digest")
    parser.add_argument("--context", type=Path, default=ROOT, help="folder with the sources")
    parser.add_argument("--repository", default="failback", help="first part of the tags")
    parser.add_argument("--dist", type=Path, default=ROOT / "dist", help="folder for SBOMs")
    parser.add_argument("--storage", action="append", default=[], help="option for buildah itself")
    parser.add_argument("--pass-on", action="append", default=[], help="option for the build")
    options = parser.parse_args(argv)
    unknown = set(options.targets) - set(TARGETS)
    if unknown:
        parser.error(f"unknown target {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    return options


def build(builder: str, target: str, options: argparse.Namespace) -> None:
    """Build an image, and write the list of its packages. Raises ``subprocess.CalledProcessError``
    where the builder fails."""
    subprocess.run(command(builder, target, options), cwd=options.context, check=True)
    with tempfile.TemporaryDirectory() as scratch:
        words = command(builder, f"{target}-sbom", options, out=Path(scratch))
        subprocess.run(words, cwd=options.context, check=True)
        options.dist.mkdir(parents=True, exist_ok=True)
        shutil.copy(Path(scratch) / SBOM, options.dist / f"failback-{target}-{version()}.cdx.json")


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(argv)
    try:
        base_image(options)
        builder = choose(options.builder)
    except BuildError as error:
        print(f"images: {error}", file=sys.stderr)
        return 2
    for target in options.targets or TARGETS:
        print(f"images: {target} with {builder}", flush=True)
        try:
            build(builder, target, options)
        except subprocess.CalledProcessError:
            print(f"images: {target} failed", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
