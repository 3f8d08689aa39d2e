"""Runs a shipper beside the process that writes the consume log, as a process of its own.

The shipper holds pyarrow and packs what it ships; a consumer should not pay for that. It learns by
the end of a pipe that its writer is gone, even by SIGKILL, ships what the writer left, and ends. It
is in a session of its own, so Ctrl-C reaches the writer alone. A shipper that died is started
again; what was not shipped stays in the folder for the next one.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final, Self

logger = logging.getLogger(__name__)

RESTART_SECONDS: Final = 5.0


class ShipperBeside:
    """The shipper of one folder, for as long as the writer runs.

    Args:
        hot_folder: The folder that the :class:`ConsumeLog` was given.
        to: ``http(s)://COLLECTOR``, or the root of a lake on this host.
        token_file: Bearer token for the collector; default ``FAILBACK_TOKEN_FILE``.
        ca_file: Certificates to trust instead of the system's.
        linger_seconds: How long the shipper waits for a collector that is down, after the writer
            has ended.
        restart_seconds: How long after its death a shipper is started again.
    """

    def __init__(
        self,
        hot_folder: Path,
        to: str,
        *,
        token_file: Path | None = None,
        ca_file: Path | None = None,
        linger_seconds: float = 60.0,
        restart_seconds: float = RESTART_SECONDS,
    ) -> None:
        self._command = [sys.executable, "-m", "failback.client.consumelog.upload", "--until-eof"]
        self._command += ["--hot", str(hot_folder), "--to", to]
        self._command += ["--linger-seconds", str(linger_seconds)]
        if token_file is not None:
            self._command += ["--token-file", str(token_file)]
        if ca_file is not None:
            self._command += ["--ca-file", str(ca_file)]
        self._restart_seconds = restart_seconds
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._process = self._start()
        self._watcher = threading.Thread(target=self._watch, name="shipper-watch", daemon=True)
        self._watcher.start()

    @property
    def pid(self) -> int:
        """The shipper's process."""
        return self._process.pid

    def end(self, wait_seconds: float | None = None) -> bool:
        """Say that the log is closed; wait for the shipper and return whether all was shipped.

        A shipper that is not ready in time goes on by itself.
        """
        with self._lock:
            self._ending.set()
            self._close_pipe()
            process = self._process
        try:
            return process.wait(wait_seconds) == 0
        except subprocess.TimeoutExpired:
            return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def _watch(self) -> None:
        while True:
            code = self._process.wait()
            if self._ending.wait(self._restart_seconds):
                return
            with self._lock:
                if self._ending.is_set():
                    return
                logger.warning("the shipper ended with %d and is started again", code)
                self._close_pipe()
                self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _close_pipe(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
