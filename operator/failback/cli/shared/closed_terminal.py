"""What a closed terminal does to a command: it ends as by SIGTERM, or goes on without output."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import threading
from typing import Any


class _Terminal(io.FileIO):
    """A terminal that may close: what is written from then on is dropped."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return len(memoryview(data).cast("B"))


def end_with_terminal() -> None:
    """Let SIGHUP end this process as SIGTERM does, so that it ends what it started.

    Output to the closed terminal is dropped: EIO must not break off what is being undone.
    A process that ignores SIGHUP, as under nohup, goes on.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is getattr(sys, f"__{name}__") and stream is not None and stream.isatty():
            raw = io.BufferedWriter(_Terminal(stream.fileno(), "wb", closefd=False))
            made = io.TextIOWrapper(raw, stream.encoding, stream.errors, line_buffering=True)
            setattr(sys, name, made)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, lambda *_: os.kill(os.getpid(), signal.SIGTERM))


def outlive_terminal() -> None:
    """Let this process go on when its terminal closes."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
