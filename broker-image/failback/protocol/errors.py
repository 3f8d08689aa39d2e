"""Errors of every Failback package, divided by the party that must act.

They carry data and make the message from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from failback.common.text import REFUSED


class FailbackError(Exception):
    """Base of all errors that Failback raises on purpose."""


class ProtocolError(FailbackError):
    """The peer sent what the protocol does not allow. A stream that did so must be closed."""


class FrameTooLarge(ProtocolError):
    """A frame's announced or encoded size is above the limit, both in bytes."""

    def __init__(self, frame_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"frame of {frame_bytes} bytes is above the limit of {limit_bytes}")
        self.frame_bytes = frame_bytes
        self.limit_bytes = limit_bytes


class UnreadableAnswer(ProtocolError):
    """A peer answered with success, and with what is no answer to the question."""

    def __init__(self, addr: str, problem: str) -> None:
        super().__init__(f"{addr} answered what cannot be read: {problem}")
        self.addr = addr
        self.problem = problem


class StoreError(FailbackError):
    """The disk or the store on it: stop taking writes."""


class CorruptStore(StoreError):
    """A store file holds something that no crash of ours can leave behind."""

    def __init__(self, path: Path | str, position: int, what: str) -> None:
        super().__init__(f"{path}: corrupt at byte {position}: {what}")
        self.path = Path(path)
        self.position = position
        self.what = what


class ConfigError(FailbackError):
    """The user's input is wrong: names the field, and file and line where they are known."""

    def __init__(self, field: str, problem: str, *, file: Path | str | None = None) -> None:
        super().__init__(field, problem)
        self.field = field
        self.problem = problem
        self.file = Path(file) if file is not None else None
        self.line: int | None = None
        self.column: int | None = None

    def __str__(self) -> str:
        if self.file is None:
            return f"{self.field}: {self.problem}"
        numbers = (each for each in (self.line, self.column) if each is not None)
        place = ":".join([str(self.file), *map(str, numbers)])
        return f"{place}: {self.field}: {self.problem}"


class ConfigErrors(ConfigError):
    """Several parts of the user's input are wrong; the message names all, one line each."""

    def __init__(self, errors: Sequence[ConfigError]) -> None:
        first = errors[0]
        super().__init__(first.field, first.problem, file=first.file)
        self.line, self.column = first.line, first.column
        self.errors = tuple(errors)

    def __str__(self) -> str:
        return "\n".join(map(str, self.errors))


def raise_all(errors: Sequence[ConfigError]) -> None:
    """Raise what was found, if anything was; each once, and one that holds several taken apart."""
    all_ = [
        each
        for error in errors
        for each in (error.errors if isinstance(error, ConfigErrors) else (error,))
    ]
    found = list({str(each): each for each in all_}.values())
    if found:
        raise found[0] if len(found) == 1 else ConfigErrors(found)


def check_all(*checks: Callable[[], None]) -> None:
    """Make every check, then raise what they found together."""
    errors = []
    for check in checks:
        try:
            check()
        except ConfigError as error:
            errors.append(error)
    raise_all(errors)


class RemotingError(FailbackError):
    """A call to a peer brought no answer."""


class RemotingConnectError(RemotingError):
    """No connection to ``addr`` could be made; the request was not sent."""

    def __init__(self, addr: str, why: str = "") -> None:
        super().__init__(f"connect to {addr} failed" + (f": {why}" if why else ""))
        self.addr = addr
        self.why = why

    @property
    def is_refused(self) -> bool:
        """Whether the host answered that no process listens on the port."""
        return self.why == REFUSED


class RemotingSendError(RemotingError):
    """The connection broke under the request; the peer may or may not have acted on it.

    ``under_way`` tells whether the request had been handed to the connection: one that had not
    cannot have reached the peer.
    """

    def __init__(self, addr: str, why: str = "", *, under_way: bool = False) -> None:
        super().__init__(f"send request to {addr} failed" + (f": {why}" if why else ""))
        self.addr = addr
        self.why = why
        self.under_way = under_way


class RemotingTimeout(RemotingError):
    """No answer within the time; the peer may or may not have acted on the request."""

    def __init__(self, addr: str, timeout_ms: float, hint: str = "") -> None:
        why = f"; {hint}" if hint else ""
        super().__init__(f"no answer from {addr} within {timeout_ms:g} ms{why}")
        self.addr = addr
        self.timeout_ms = timeout_ms


class BrokerError(FailbackError):
    """The peer answered with a code other than success."""

    def __init__(self, code: int, remark: str | None, addr: str) -> None:
        super().__init__(f"{addr} answered code {code}: {remark or 'no remark'}")
        self.code = code
        self.remark = remark or ""
        self.addr = addr
