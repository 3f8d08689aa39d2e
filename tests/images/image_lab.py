"""Images built by buildah, and containers of them without a container engine.

No engine runs containers here, so the kernel does it directly: an own PID and mount namespace, the
image's file system as a read-only root, its user without any capability, its entry point as PID 1,
and folders of the test where a pod has volumes. The network is the host's.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tools.build_images import TARGETS, source_date, version
from tools.setup import SetupError, apt_install
from tools.setup_kube import cache_folder

from tests.support.common.polling import SCALE
from tests.support.processes.child_process import ROOT

USER: Final = 10001
HOME: Final = "/home/rocketmq"
MOUNTS: Final = ("conf", "store", "logs", "scratch")
BASE: Final = "localhost/failback-base:bookworm"
_MIRROR: Final = "http://deb.debian.org/debian"
_CERTIFICATES: Final = "/etc/ssl/certs/ca-certificates.crt"
_BASE_PACKAGES: Final = "python3,python3-venv,ca-certificates"
SECONDS: Final = 60 * SCALE


def why_not() -> str | None:
    """Say why no image can be built here, or ``None``. Installs what is missing."""
    if os.geteuid() != 0:
        return "building images without an engine needs root"
    missing = [tool for tool in ("buildah", "debootstrap") if shutil.which(tool) is None]
    if missing:
        try:
            apt_install([*missing, "crun"], "buildah and debootstrap (images without an engine)")
        except SetupError as error:
            return str(error)
    return None


def run(*words: str | Path, quiet: bool = True) -> str:
    """Run a command to its end; return what it printed."""
    done = subprocess.run(
        [str(word) for word in words],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if quiet else None,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(map(str, words))}\n{done.stdout[-6000:]}"
    return done.stdout


def open_null_device() -> None:
    """Let every user write to /dev/null: a build borrows the machine's, and apt is not root there.

    A linker that root tells to write there has changed the mode on some machines.
    """
    os.chmod(os.devnull, 0o666)


class ImageStore:
    """Buildah with a storage of its own, kept across runs so that layers are found again."""

    def __init__(self) -> None:
        self.folder = cache_folder() / "images"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.sboms = self.folder / "sboms"
        self._date = source_date()
        self._lock = (self.folder / "lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)  # one run at a time changes the storage
        self._containers: list[str] = []
        open_null_device()
        self.context = self.copy_sources()
        self.options = self._working_options()

    def _working_options(self) -> list[str]:
        """Return the storage that works: overlay, where the kernel lets us, else plain copies."""
        for driver in ("overlay", "vfs"):
            options = [f"--storage-driver={driver}", f"--root={self.folder / driver}"]
            options.append(f"--runroot=/run/failback-images-{driver}")
            done = subprocess.run(
                ["buildah", *options, "from", "scratch"],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode == 0:
                run("buildah", *options, "rm", done.stdout.strip())
                return options
        raise AssertionError(f"buildah can store nothing in {self.folder}: {done.stderr}")

    def buildah(self, *words: str | Path) -> str:
        return run("buildah", *self.options, *words).strip()

    def has(self, image: str) -> bool:
        return image in self.buildah("images", "--format", "{{.Name}}:{{.Tag}}").split()

    def copy_sources(self) -> Path:
        """Return a copy of what images are made of, so that nobody changes it between builds."""
        context = self.folder / "sources"
        shutil.rmtree(context, ignore_errors=True)
        ignored = shutil.ignore_patterns("__pycache__")
        lines = (ROOT / ".dockerignore").read_text().splitlines()
        for name in (
            "Dockerfile",
            ".dockerignore",
            *(word[1:] for word in lines if word[:1] == "!"),
        ):
            source, target = ROOT / name, context / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, ignore=ignored)
            else:
                shutil.copy2(source, target)
        return context

    def make_base(self) -> None:
        """Make the base image from Debian's packages: no registry is asked."""
        if self.has(BASE):
            return
        root = self.folder / "base-root"
        shutil.rmtree(root, ignore_errors=True)
        run(
            "debootstrap",
            "--variant=minbase",
            f"--include={_BASE_PACKAGES}",
            "bookworm",
            root,
            _MIRROR,
        )
        for leftover in ("var/cache/apt/archives", "var/lib/apt/lists"):
            shutil.rmtree(root / leftover, ignore_errors=True)
            (root / leftover / "partial").mkdir(parents=True)
        archive = self.folder / "base.tar"
        run("tar", "--numeric-owner", "--sort=name", "-C", root, "-cf", archive, ".")
        shutil.rmtree(root)
        container = self.buildah("from", "scratch")
        self.buildah("add", "--quiet", container, archive, "/")
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        self.buildah("config", "--env", f"PATH={path}", container)
        self.buildah("commit", "--quiet", "--rm", container, BASE)
        archive.unlink()

    def build(self, *targets: str, repository: str = "failback", fresh: bool = False) -> None:
        """Build targets as ``make images`` does, on our base and without any daemon."""
        extra = [f"--pass-on=--volume={_CERTIFICATES}:{_CERTIFICATES}:ro"]
        if fresh:
            extra.append("--pass-on=--no-cache")
        run(
            *("env", f"SOURCE_DATE_EPOCH={self._date}", sys.executable, "tools/build_images.py"),
            f"--context={self.context}",
            "--builder=buildah",
            *(f"--base={BASE}", "--any-base", f"--dist={self.sboms}"),
            f"--repository={repository}",
            "--pass-on=--isolation=chroot",
            *extra,
            *(f"--storage={option}" for option in self.options),
            *targets,
        )

    def inspect(self, image: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.buildah("inspect", "--type", "image", image))
        return found

    def listing(self, image: str) -> set[tuple[str, ...]]:
        """Return every file of an image: path, mode, owner, time, and what is in it."""
        root = self.mount(image)
        found: set[tuple[str, ...]] = set()
        for path in root.rglob("*"):
            what = path.lstat()
            digest = ""
            if path.is_symlink():
                digest = str(path.readlink())
            elif path.is_file():
                digest = hashlib.sha256(path.read_bytes()).hexdigest()
            mode, owner = f"{what.st_mode:o}", f"{what.st_uid}:{what.st_gid}"
            name = str(path.relative_to(root))
            found.add((name, mode, owner, str(int(what.st_mtime)), digest))
        return found

    def size_bytes(self, image: str) -> int:
        """Return the size of all files of an image."""
        return int(run("du", "-s", "-x", "--block-size=1", self.mount(image)).split()[0])

    def mount(self, image: str) -> Path:
        """Return the root file system of a new container of an image."""
        container = self.buildah("from", "--pull-never", image)
        self._containers.append(container)
        return Path(self.buildah("mount", container))

    def close(self) -> None:
        for container in self._containers:
            self.buildah("rm", container)
        shutil.rmtree(self.context)
        self.buildah("rmi", "--prune", "--force")
        self._lock.close()


@dataclass(frozen=True)
class Image:
    """One of ours: its configuration, and its files."""

    name: str
    config: Mapping[str, Any]
    root: Path

    @property
    def environment(self) -> dict[str, str]:
        pairs = (entry.partition("=") for entry in self.config["Env"])
        return {name: value for name, _, value in pairs}


@contextmanager
def built_images() -> Iterator[tuple[ImageStore, dict[str, Image]]]:
    """Build all targets; yield them by target."""
    store = ImageStore()
    try:
        store.make_base()
        store.build(*TARGETS)
        images = {}
        for target in TARGETS:
            name = f"localhost/failback/{target}:{version()}"
            config = store.inspect(name)["Docker"]["config"]
            images[target] = Image(name, config, store.mount(name))
        yield store, images
    finally:
        store.close()


class Container:
    """One container of an image; volumes are folders of the test."""

    def __init__(self, image: Image, folder: Path, environment: Mapping[str, str]) -> None:
        self.image = image
        self.folder = folder
        self._environment = {**image.environment, **environment}
        self._process: subprocess.Popen[str] | None = None
        self.mounts = {f"{HOME}/{name}": folder / name for name in MOUNTS}
        self.mounts["/run/failback"] = folder / "run"
        for source in self.mounts.values():
            source.mkdir(parents=True, exist_ok=True)
            os.chown(source, USER, USER)

    def start(self, *arguments: str, command: Sequence[str] = ()) -> subprocess.Popen[str]:
        """Start the entry point (or ``command``) with ``arguments``, else with the image's own."""
        words = [*(command or self.image.config["Entrypoint"])]
        words += arguments or self.image.config["Cmd"]
        log = self.folder / "output.log"
        with log.open("a") as output:
            self._process = subprocess.Popen(
                [
                    *("unshare", "--mount", "--propagation=private", "--pid", "--fork"),
                    *("--kill-child", "--", "sh", "-euc", self._script(), "sh", *words),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
            )
        return self._process

    def _script(self) -> str:
        """Return what PID 1 does before it becomes the entry point: mount, then drop all rights."""
        root = self.image.root
        lines = [f"mount --bind {root} {root}"]
        for target, source in self.mounts.items():
            lines.append(f"mount --bind {source} {root}{target}")
        lines += [
            f"touch {root}/etc/hosts",
            f"mount --bind /etc/hosts {root}/etc/hosts",  # as a kubelet does
            f"mount -t proc proc {root}/proc",
            f"mount --rbind /dev {root}/dev",
            f"mount -o remount,bind,ro {root}",
        ]
        lines.append(f'exec chroot {root} {" ".join(self._as_user())} "$@"')
        return "\n".join(lines)

    def _as_user(self) -> list[str]:
        values = [f"{name}={value}" for name, value in sorted(self._environment.items())]
        user = [f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--no-new-privs"]
        return ["setpriv", *user, "--bounding-set=-all", "--inh-caps=-all", "env", "-i", *values]

    def ended(self, seconds: float = SECONDS) -> int:
        assert self._process is not None
        return self._process.wait(timeout=seconds)

    def run(
        self, *arguments: str, command: Sequence[str] = (), seconds: float = SECONDS
    ) -> tuple[int, str]:
        """Run to the end; return exit code and output."""
        log = self.folder / "output.log"
        before = log.stat().st_size if log.exists() else 0
        self.start(*arguments, command=command)
        code = self.ended(seconds)
        return code, log.read_bytes()[before:].decode()

    def exec(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command inside, as ``kubectl exec`` does."""
        enter = ["nsenter", f"--target={self._pid_1()}", "--pid", "--mount", "--root", "--wd"]
        return subprocess.run(
            [*enter, *self._as_user(), *words],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    def _pid_1(self) -> int:
        """Return our number of the container's PID 1."""
        assert self._process is not None
        pid = self._process.pid
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])

    def stop(self) -> None:
        """End the container: with its PID 1 goes all that is in it.

        Killing ``unshare`` is not enough: the change of user took PID 1 out of its --kill-child.
        """
        if self._process is not None and self._process.poll() is None:
            os.kill(self._pid_1(), signal.SIGKILL)
            self._process.wait(timeout=SECONDS)
