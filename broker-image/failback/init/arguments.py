"""The command line of ``failback-init``: words in, one value out. Pure."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

USAGE: Final = """\
usage: failback-init -- COMMAND [ARGUMENT...]
           run COMMAND as a child: reap, forward signals, end with its exit code (128+n: signal n)
       failback-init kill SIGNAL [--expect PID:STARTTIME] [--hold] [--until SECONDS] [--by TEXT]
           signal exactly that child; --hold first writes the hold file
       failback-init hold [--until SECONDS] [--by TEXT]
           keep the child down: it is not started again
       failback-init renew SECONDS         let a hold or a stop end so many seconds from now
       failback-init release               let it start again
       failback-init status [--json]       the child, the hold, and how earlier ones died
       failback-init --version | --help

--until: a hold, or a stop by SIGSTOP, ends by itself after so many seconds, unless it is renewed.
The run directory is FAILBACK_RUN_DIR, /run/failback if that is not set.
Exit codes: 0 done, 1 there is no such child, 2 wrong usage, 4 refused, 126 and 127 as in a shell.
"""


_MOST_SECONDS: Final = 86_400


class UsageError(Exception):
    """The words make no sense; the message says which."""


class Expected(NamedTuple):
    """The child that a kill is meant for: pid, and start time in clock ticks since boot."""

    pid: int
    ticks: int


class Run(NamedTuple):
    command: tuple[str, ...]


class Kill(NamedTuple):
    signum: int
    expect: Expected | None
    hold: bool
    by: str
    until: float | None = None
    """Seconds after which a hold or a stop ends by itself."""


class Hold(NamedTuple):
    by: str
    until: float | None = None


class Renew(NamedTuple):
    seconds: float


class Release(NamedTuple):
    pass


class Status(NamedTuple):
    as_json: bool


class Show(NamedTuple):
    """``--help`` or ``--version``."""

    what: str


Request = Run | Kill | Hold | Renew | Release | Status | Show


def parse(words: Sequence[str]) -> Request:
    """Return what the words ask for.

    Raises:
        UsageError: They ask for nothing that is known.
    """
    if not words:
        raise UsageError("a command is missing: failback-init -- COMMAND")
    first, rest = words[0], list(words[1:])
    if first == "--":
        if not rest:
            raise UsageError("nothing follows --")
        return Run(tuple(rest))
    if first in ("-h", "--help"):
        return Show("help")
    if first == "--version":
        return Show("version")
    readers: dict[str, Callable[[list[str]], Request]] = {
        "kill": _kill,
        "hold": _hold,
        "renew": _renew,
        "release": _release,
        "status": _status,
    }
    if first not in readers:
        raise UsageError(f"unknown word {first!r}: a command to run stands behind --")
    return readers[first](rest)


def signal_number(word: str) -> int:
    """Read ``9``, ``KILL`` or ``SIGKILL``."""
    if word.isdecimal():
        number = int(word)
        if number in range(1, signal.NSIG):
            return number
        raise UsageError(f"no signal has the number {word}")
    name = word.upper()
    try:
        return int(signal.Signals[name if name.startswith("SIG") else f"SIG{name}"])
    except KeyError:
        raise UsageError(f"unknown signal {word!r}") from None


def expected(word: str) -> Expected:
    """Read ``PID:STARTTIME``."""
    pid, colon, ticks = word.partition(":")
    if not (colon and pid.isdecimal() and ticks.isdecimal()):
        raise UsageError(f"--expect takes PID:STARTTIME, not {word!r}")
    return Expected(int(pid), int(ticks))


def _kill(words: list[str]) -> Kill:
    valued = ("--expect", "--by", "--until")
    options, flags, rest = _options(words, valued=valued, flags=("--hold",))
    if len(rest) != 1:
        raise UsageError("kill takes one signal")
    expect = expected(options["--expect"]) if "--expect" in options else None
    by, until = options.get("--by", ""), _until(options)
    return Kill(signal_number(rest[0]), expect, "--hold" in flags, by, until)


def _hold(words: list[str]) -> Hold:
    options, _, rest = _options(words, valued=("--by", "--until"))
    _nothing("hold", rest)
    return Hold(options.get("--by", ""), _until(options))


def _renew(words: list[str]) -> Renew:
    if len(words) != 1:
        raise UsageError("renew takes a number of seconds")
    return Renew(_seconds("renew", words[0]))


def _until(options: dict[str, str]) -> float | None:
    return _seconds("--until", options["--until"]) if "--until" in options else None


def _seconds(what: str, word: str) -> float:
    try:
        seconds = float(word)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= _MOST_SECONDS:
        raise UsageError(f"{what} takes seconds, above 0 and at most {_MOST_SECONDS}, not {word!r}")
    return seconds


def _release(words: list[str]) -> Release:
    _nothing("release", words)
    return Release()


def _status(words: list[str]) -> Status:
    _, flags, rest = _options(words, flags=("--json",))
    _nothing("status", rest)
    return Status("--json" in flags)


def _nothing(command: str, rest: list[str]) -> None:
    if rest:
        raise UsageError(f"{command}: unexpected {rest[0]!r}")


def _options(
    words: list[str], *, valued: tuple[str, ...] = (), flags: tuple[str, ...] = ()
) -> tuple[dict[str, str], set[str], list[str]]:
    """Divide ``words`` into options with values, flags, and the rest."""
    values: dict[str, str] = {}
    seen: set[str] = set()
    rest: list[str] = []
    left = iter(words)
    for word in left:
        name, equals, value = word.partition("=")
        if name in valued:
            values[name] = value if equals else _next(left, name)
        elif word in flags:
            seen.add(word)
        elif word.startswith("-"):
            raise UsageError(f"unknown option {word!r}")
        else:
            rest.append(word)
    return values, seen, rest


def _next(left: Iterator[str], name: str) -> str:
    value = next(left, None)
    if value is None:
        raise UsageError(f"{name} needs a value")
    return value
