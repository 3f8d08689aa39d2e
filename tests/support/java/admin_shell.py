"""mqadmin in one JVM for many commands: a cold one takes seconds for each."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path
from typing import Final

from tests.support.common.polling import SCALE
from tests.support.java.apache import Answer, java, server_home
from tests.support.processes.child_process import ROOT

_END: Final = "\x04"
_WORD: Final = "\x1f"
_TRIES: Final = 3
_IMPATIENT: Final = ("RemotingTimeoutException", "RemotingConnectException")
_SECONDS: Final = 180.0


class AdminShell:
    """Runs Apache's mqadmin commands, one after the other.

    A few of them keep their client, which is shut down after its first use: brokerConsumeStats
    works once only.
    """

    def __init__(self, folder: Path, home: Path | None = None) -> None:
        """Start it; ``home`` has another ``conf``, with tools.yml."""
        folder.mkdir(parents=True, exist_ok=True)
        server = server_home()
        command = [java(), "-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command += [f"-Drocketmq.home.dir={home or server / 'home'}", f"-Duser.home={folder}"]
        command += ["-cp", f"{server}/lib/*", str(ROOT / "tests/java/tools/AdminShell.java")]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=folder,
        )

    def run(self, *arguments: str) -> Answer:
        """Run one command; a failure inside it is an error, which it only prints."""
        for _ in range(_TRIES):
            out = self._once(arguments)
            # It gives connections and requests 3 s each; on a busy machine that is short.
            if not any(name in out for name in _IMPATIENT):
                break
        assert "Exception" not in out, f"mqadmin {' '.join(arguments)}:\n{out}"
        return Answer(out, "")

    def _once(self, arguments: tuple[str, ...]) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        watchdog = threading.Timer(_SECONDS * SCALE, self._process.kill)
        watchdog.start()
        try:
            self._process.stdin.write(_WORD.join(arguments) + "\n")
            self._process.stdin.flush()
            lines: list[str] = []
            for line in self._process.stdout:
                if line.rstrip("\n") == _END:
                    return "".join(lines)
                lines.append(line)
        finally:
            watchdog.cancel()
        raise AssertionError(f"mqadmin {' '.join(arguments)} ended its JVM:\n{''.join(lines)}")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
