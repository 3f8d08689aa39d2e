"""A file system of its own for the store of each broker: ``failback up --faults disk``.

``disks/CLAIM.img`` is an ext4 image, mounted at ``claims/CLAIM`` while a runtime lives. It takes
room of the machine's disk as the store is written, and never more than :data:`BYTES`. So a disk
can be filled, or turn read-only as after an error, without the machine's own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from failback.operator.local.root import Root
from failback.protocol.errors import ConfigError, FailbackError

BYTES: Final = 2 << 30
FILLER: Final = "filler"
"""What takes the room of a store. No broker looks at it."""
_PATH: Final = "/usr/sbin:/usr/bin:/sbin:/bin"
_PROGRAMS: Final = ("mkfs.ext4", "e2fsck", "mount", "umount", "losetup")
_REPAIRED: Final = (0, 1)


class DiskError(FailbackError):
    """A disk could not be made, mounted or changed."""


def refuse_missing() -> None:
    """Raise :class:`ConfigError` if no disk can be made here: it says what is missing."""
    if os.geteuid() != 0:
        raise ConfigError("--faults disk", "needs root: it mounts a file system for each store")
    missing = [name for name in _PROGRAMS if shutil.which(name, path=_PATH) is None]
    if missing:
        what = f"needs {', '.join(missing)}; install it: apt-get install e2fsprogs mount"
        raise ConfigError("--faults disk", what)
    if not Path("/dev/loop-control").exists():
        raise ConfigError("--faults disk", "needs loop devices, and there is no /dev/loop-control")


def mount_claims(root: Root, claims: Iterable[str]) -> None:
    """Mount the disk of every claim; one that has no image yet gets one.

    Raises:
        ConfigError: A claim has files already, which the mount would hide.
        DiskError: A program failed.
    """
    folder = root.path / "disks"
    folder.mkdir(exist_ok=True)
    for claim in claims:
        image, place = folder / f"{claim}.img", root.claim_dir(claim)
        place.mkdir(parents=True, exist_ok=True)
        if place.is_mount():
            continue
        if not image.exists():
            if any(place.iterdir()):
                raise ConfigError("--faults disk", f"{place} has files; take another --root")
            with image.open("wb") as file:
                file.truncate(BYTES)
            _run("mkfs.ext4", "-q", "-F", "-m", "0", str(image))
        _mount(image, place)


def unmount_all(root: Root) -> list[str]:
    """Unmount the disks of a root; what is in them stays in their images.

    Returns a sentence for each that is still in use.
    """
    problems = []
    for claim in claims_with_disk(root):
        place = root.claim_dir(claim)
        try:
            if place.is_mount():
                _run("umount", str(place))
        except DiskError as error:
            problems.append(str(error))
    return problems


def claims_with_disk(root: Root) -> list[str]:
    """The claims whose files are in an image."""
    return sorted(image.stem for image in (root.path / "disks").glob("*.img"))


def fill(place: Path, ratio: float) -> None:
    """Take room until this share of the disk is used.

    Raises:
        DiskError: It is not a disk of ours, so it may be the machine's.
    """
    _refuse_other(place)
    free_room(place)
    found = os.statvfs(place)
    wanted = round(found.f_blocks * ratio) - (found.f_blocks - found.f_bavail)
    if wanted <= 0:
        raise DiskError(f"the disk at {place} is fuller than {ratio:.0%} already")
    descriptor = os.open(place / FILLER, os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, wanted * found.f_frsize)
    except OSError as error:
        free_room(place)
        raise DiskError(f"the disk at {place} could not be filled: {error}") from error
    finally:
        os.close(descriptor)


def free_room(place: Path) -> None:
    """Undo :func:`fill`; safe to repeat."""
    (place / FILLER).unlink(missing_ok=True)


def fail(place: Path) -> None:
    """Let the kernel see an error of the file system: from now on it takes no write.

    Raises:
        DiskError: It is not a disk of ours.
    """
    _refuse_other(place)
    _run("mount", "-o", "remount,abort", str(place))


def has_failed(place: Path) -> bool:
    """Whether the file system takes no write since an error, or is not mounted."""
    return not place.is_mount() or "abort" in _options(place)


def repair(root: Root, claim: str) -> None:
    """Undo :func:`fail`. No process may have a file open there.

    A process with mounts of its own may still have this one, as containers do. What is mounted must
    not be checked, so the image is copied then: since the error nothing is written to it.

    Raises:
        DiskError: A program failed; the message is its own.
    """
    image, place = root.path / "disks" / f"{claim}.img", root.claim_dir(claim)
    if place.is_mount():
        _run("umount", str(place))
    if _run("losetup", "-j", str(image)):
        new = image.with_suffix(".new")
        _run("cp", "--sparse=always", str(image), str(new))
        new.replace(image)
    _run("e2fsck", "-p", "-f", str(image), fine=_REPAIRED)
    _mount(image, place)


def _mount(image: Path, place: Path) -> None:
    _run("mount", "-o", "loop,errors=continue", str(image), str(place))


def _refuse_other(place: Path) -> None:
    total = os.statvfs(place)
    if not place.is_mount() or total.f_blocks * total.f_frsize > BYTES:
        raise DiskError(f"{place} is no disk of its own: start with failback up --faults disk")


def _options(place: Path) -> list[str]:
    mounts = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    found = [line.split() for line in mounts]
    return next((each[3].split(",") for each in found[::-1] if each[1] == str(place)), [])


def _run(*command: str, fine: tuple[int, ...] = (0,)) -> str:
    done = subprocess.run(command, env={"PATH": _PATH}, capture_output=True, text=True, check=False)
    if done.returncode not in fine:
        raise DiskError(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout.strip()
