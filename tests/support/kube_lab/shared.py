"""One lab for several processes: the first one starts it, and it ends when all have gone."""

from __future__ import annotations

import fcntl
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from tests.support.common.polling import wait_until
from tests.support.kube_lab.control_plane import ControlPlane
from tests.support.kube_lab.servers import Server
from tests.support.processes.child_process import ROOT

_START_SECONDS: Final = 300
_END_SECONDS: Final = 3600
"""The one that started the lab waits until the others need it no more."""


@contextmanager
def shared_lab(folder: Path) -> Iterator[ControlPlane]:
    """Give the control plane of ``folder``'s lab, which has a node too. Call it in a main thread.

    Every user holds a shared lock; the lab ends when it gets the exclusive one.
    """
    folder.mkdir(exist_ok=True)
    with users_file(folder).open("a") as users, (folder / "starting").open("a") as starting:
        fcntl.flock(starting, fcntl.LOCK_EX)
        fcntl.flock(users, fcntl.LOCK_SH)
        place, server = place_file(folder), None
        if not place.exists():
            command = [sys.executable, "-m", "tests.support.kube_lab", f"--while-used={folder}"]
            server = Server("lab", command, folder, {"PYTHONPATH": str(ROOT)})
            server.start()
            wait_until(lambda: _is_up(server, place), "the lab is up", _START_SECONDS)
        fcntl.flock(starting, fcntl.LOCK_UN)
        try:
            yield ControlPlane(Path(place.read_text()))
        finally:
            fcntl.flock(users, fcntl.LOCK_UN)
            if server is not None:
                wait_until(lambda: not server.alive, "the lab has ended", _END_SECONDS)


def users_file(folder: Path) -> Path:
    """Return the file that every user of the lab has locked."""
    return folder / "users"


def place_file(folder: Path) -> Path:
    """Return the file that names the control plane's folder while the lab is up."""
    return folder / "place"


def unused(users: IO[str]) -> bool:
    """Tell whether nobody uses the lab any more; if so, nobody can begin to until this ends."""
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def fresh_folder(folder: Path | None) -> Path:
    """Return a new folder for a control plane, below ``folder`` or anywhere."""
    return Path(tempfile.mkdtemp(prefix="kube-lab-", dir=folder))


def _is_up(server: Server, place: Path) -> bool:
    server.check()
    return place.exists()
