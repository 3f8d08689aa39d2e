"""How much memory a call takes at its peak, as the kernel counts it for a process of its own.

The child reads one payload after the other and hands each to a function. Before each the kernel's
high-water mark is set back. What the allocator kept of earlier calls counts as well, so nothing
hides: a peak is measured from the child at rest, before its first payload.
"""

from __future__ import annotations

import importlib
import operator
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, Final, NamedTuple

from tests.support.processes.child_process import ROOT, failback_environment

_SIZE: Final = struct.Struct(">I")
_ANSWER: Final = struct.Struct(">QI")


class Outcome(NamedTuple):
    """``peak_bytes`` above rest; ``error`` names what was raised, empty for none."""

    peak_bytes: int
    error: str


class PeakMemory:
    """A child that calls ``function`` (``module:name``), which takes bytes."""

    def __init__(self, function: str, warm_up: bytes = b"") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.processes.peak_memory", function, warm_up.hex()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, **failback_environment()},
        )

    def measure(self, payload: bytes) -> Outcome:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(_SIZE.pack(len(payload)) + payload)
        self._process.stdin.flush()
        peak, size = _ANSWER.unpack(self._process.stdout.read(_ANSWER.size))
        return Outcome(peak, self._process.stdout.read(size).decode())

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


@contextmanager
def peak_memory(function: str, warm_up: bytes = b"") -> Iterator[PeakMemory]:
    child = PeakMemory(function, warm_up)
    try:
        yield child
    finally:
        child.close()


def status_bytes(name: str, pid: int | str = "self") -> int:
    """Return a figure of a process, such as ``VmRSS`` or ``VmHWM``."""
    with open(f"/proc/{pid}/status") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


def reset_peak(pid: int | str = "self") -> None:
    """Set a process's ``VmHWM`` back to what it has now."""
    with open(f"/proc/{pid}/clear_refs", "w") as file:
        file.write("5")


def _call(function: Callable[[bytes], object], payload: bytes) -> str:
    try:
        function(payload)
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:400]}"
    return ""


def _serve(function: Callable[[bytes], object], source: BinaryIO, sink: BinaryIO) -> None:
    rest = status_bytes("VmRSS")
    while head := source.read(_SIZE.size):
        payload = source.read(_SIZE.unpack(head)[0])
        reset_peak()
        error = _call(function, payload).encode()
        sink.write(_ANSWER.pack(max(status_bytes("VmHWM") - rest, 0), len(error)) + error)
        sink.flush()


if __name__ == "__main__":
    module, _, name = sys.argv[1].partition(":")
    decode: Callable[[bytes], object] = operator.attrgetter(name)(importlib.import_module(module))
    _call(decode, bytes.fromhex(sys.argv[2]))
    _serve(decode, sys.stdin.buffer, sys.stdout.buffer)
