"""The Java load generator: one JVM with the unmodified client, driven by lines."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import msgspec
from tools.setup_java import ensure_load_generator

from tests.benchmarks.broker.proc import CLOCK_TICKS
from tests.support.java.apache import java

_HEAP: Final = ("-Xms512m", "-Xmx512m")


class Said(msgspec.Struct):
    """An answer; which fields are filled depends on the command."""

    error: str = ""
    messages: int = 0
    micros: int = 0
    ticks: list[int] = []
    errors: int = 0
    unsure: int = 0
    first_error: str = ""
    p50: int = 0
    p99: int = 0
    p999: int = 0
    accepted_ms: int = 0
    tries: int = 0


class GeneratorError(Exception):
    """A command failed; the text is what the Java side said."""


@dataclass(frozen=True, slots=True)
class Window:
    """One measured window.

    ``cpu_us`` is the CPU of each watched process per message; latencies are per send, so per
    batch where batches are sent. ``unsure`` counts stored messages whose status was not SEND_OK.
    """

    rate: float
    cpu_us: tuple[float, ...]
    p50_ms: float
    p99_ms: float
    p999_ms: float
    messages: int
    errors: int
    unsure: int
    first_error: str


class LoadGenerator:
    """Starts the JVM on entry and ends it on exit."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None
        self._owed = 0
        """Answers that were asked for and not read yet."""

    def __enter__(self) -> Self:
        jars, classes = ensure_load_generator()
        self._folder.mkdir(parents=True, exist_ok=True)
        command = [java(), *_HEAP, f"-Duser.home={self._folder}"]
        command += ["-Drocketmq.client.logLevel=WARN"]
        command += ["-cp", f"{classes}:{jars}/*", "LoadGenerator"]
        with (self._folder / "generator.err").open("w") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=self._folder,
            )
        self._owed = 1  # it says that it is ready
        self._answer()
        return self

    def __exit__(self, *_: object) -> None:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.close()
            process.wait(10)
        except (subprocess.TimeoutExpired, BrokenPipeError):
            process.kill()
            process.wait()
        process.stdout.close()

    # --- commands ----------------------------------------------------------------------

    def send(self, namesrv: str, topic: str, pids: Sequence[int] = (), **options: int) -> Window:
        """Send in ``threads`` threads; see LoadGenerator.java for the options.

        Raises:
            GeneratorError: Nothing was accepted.
        """
        self._ask("send", namesrv=namesrv, topic=topic, pids=_joined(pids), **options)
        said = self._answer()
        if not said.messages:
            raise GeneratorError(f"nothing was accepted: {said.first_error}")
        return _window(said)

    def consume(
        self, namesrv: str, topic: str, group: str, pids: Sequence[int] = (), **options: int
    ) -> Window:
        """Let a new group consume ``count`` messages from the beginning."""
        self._ask(
            "consume", namesrv=namesrv, topic=topic, group=group, pids=_joined(pids), **options
        )
        return _window(self._answer())

    def begin_first(self, namesrv: str, topic: str, seconds: int) -> None:
        """Try to send until it is accepted; :meth:`end_first` tells when it was."""
        self._ask("first", namesrv=namesrv, topic=topic, seconds=seconds)

    def end_first(self) -> float:
        """Return the wall clock of the first accepted send, in seconds."""
        return self._answer().accepted_ms / 1000

    def first(self, namesrv: str, topic: str, seconds: int = 60) -> float:
        """Return when the first send was accepted with SEND_OK."""
        self.begin_first(namesrv, topic, seconds)
        return self.end_first()

    def close_producers(self) -> None:
        """Forget all connections: their brokers are about to go."""
        self._ask("close")
        self._answer()

    # --- the line protocol -------------------------------------------------------------

    def _ask(self, verb: str, **options: object) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        while self._owed:  # of a cell that failed before it read them
            self._read()
        self._owed = 1
        words = [f"-{name} {value}" for name, value in options.items() if value != ""]
        self._process.stdin.write(" ".join([verb, *words]) + "\n")
        self._process.stdin.flush()

    def _answer(self) -> Said:
        said = self._read()
        if said.error:
            raise GeneratorError(said.error)
        return said

    def _read(self) -> Said:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            errors = (self._folder / "generator.err").read_text()
            raise GeneratorError(f"the load generator has ended: {errors[-2000:]}")
        self._owed -= 1
        return msgspec.json.decode(line, type=Said)


def _joined(pids: Sequence[int]) -> str:
    return ",".join(map(str, pids))


def _window(said: Said) -> Window:
    return Window(
        rate=said.messages / said.micros * 1e6,
        cpu_us=tuple(ticks / CLOCK_TICKS / said.messages * 1e6 for ticks in said.ticks),
        p50_ms=said.p50 / 1000,
        p99_ms=said.p99 / 1000,
        p999_ms=said.p999 / 1000,
        messages=said.messages,
        errors=said.errors,
        unsure=said.unsure,
        first_error=said.first_error,
    )
