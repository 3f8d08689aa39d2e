"""The first thing a container's process executes: namespaces, mounts, then the command.

Run as ``python -I -S launcher.py SPEC.json``; only the standard library, and little of it. The
process that was started stays outside as the guardian: it ignores the signals that its group gets
and ends as the container's PID 1 did. Both die with their parent.
"""

import ctypes
import json
import os
import signal
import sys
from pathlib import Path

_NEWNS, _NEWUTS, _NEWPID = 0x00020000, 0x04000000, 0x20000000
_RDONLY, _REMOUNT, _BIND, _REC, _PRIVATE = 0x1, 0x20, 0x1000, 0x4000, 0x40000
_PR_SET_PDEATHSIG = 1
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_NOT_FOUND = 127

libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _mount(source: str, target: str, kind: str | None, flags: int) -> None:
    encoded = kind.encode() if kind else None
    result = libc.mount(source.encode(), target.encode(), encoded, ctypes.c_ulong(flags), None)
    _checked(result, f"mount {source} at {target}")


def bind(source: str, target: str, *, read_only: bool = False) -> None:
    """Make ``source`` appear at ``target``, which is created if it is not there."""
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    elif not os.path.exists(target):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        Path(target).touch()
    _mount(source, target, None, _BIND | _REC)
    if read_only:
        _mount("none", target, None, _BIND | _REMOUNT | _RDONLY)


def build_dev(folder: str, termination_log: str) -> None:
    """Put a /dev of the container's own in place: the usual devices and the termination log."""
    os.makedirs(folder, exist_ok=True)
    _mount("dev", folder, "tmpfs", 0)
    for name in _DEVICES:
        if os.path.exists(f"/dev/{name}"):
            bind(f"/dev/{name}", f"{folder}/{name}")
    for name in ("pts", "shm", "mqueue"):
        if os.path.isdir(f"/dev/{name}"):
            bind(f"/dev/{name}", f"{folder}/{name}")
    for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        os.symlink(f"/proc/self/fd{target}", f"{folder}/{name}")
    bind(termination_log, f"{folder}/termination-log")
    _mount(folder, "/dev", None, _BIND | _REC)


def _die_with_parent() -> None:
    _checked(libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL), "prctl")


def _become(spec: dict) -> None:  # type: ignore[type-arg]
    """Prepare the namespaces and execute the command; never returns."""
    mounted = os.open(spec["mounted"], os.O_WRONLY)  # a mount may hide its path
    _mount("none", "/", None, _REC | _PRIVATE)
    libc.sethostname(spec["hostname"].encode(), len(spec["hostname"]))
    build_dev(spec["dev"], spec["termination_log"])
    for place in spec["mounts"]:
        bind(place["source"], place["target"], read_only=place["read_only"])
    _mount("proc", "/proc", "proc", 0)
    os.chdir(spec["working_folder"])
    os.write(mounted, b"1")
    os.close(mounted)
    if spec["pause"]:
        _pause()
    argv = spec["argv"]
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        print(f"cannot execute {argv[0]}: {error.strerror}", file=sys.stderr, flush=True)
        os._exit(_NOT_FOUND)


def _pause() -> None:
    """Return in a child; this process stays PID 1 and ends as the child does.

    So it is in a pod whose containers share one process namespace: PID 1 is somebody else, and
    SIGKILL reaches the container's own process.
    """
    child = os.fork()
    if child == 0:
        _die_with_parent()
        return
    while True:
        pid, wstatus = os.wait()  # orphans as well
        if pid == child:
            code = os.waitstatus_to_exitcode(wstatus)
            os._exit(code if code >= 0 else 128 - code)


def main() -> None:
    """Start the container and end as it ends."""
    spec = json.loads(Path(sys.argv[1]).read_text())
    _die_with_parent()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    _checked(libc.unshare(_NEWNS | _NEWUTS | _NEWPID), "unshare")
    pid = os.fork()
    if pid == 0:
        try:
            _die_with_parent()
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
                signal.signal(number, signal.SIG_DFL)
            _become(spec)
        finally:
            os._exit(_NOT_FOUND)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
