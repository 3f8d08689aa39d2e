"""Which method answers which request code: :func:`handles` marks it, :func:`register` collects.

A method that is marked with a header type gets the decoded header and the request. One that is
marked without gets the connection and the request, and decodes what it needs by itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, NamedTuple, TypeVar, overload

from failback.broker.remoting.connection import BrokerConnection
from failback.broker.remoting.server import Answer, Handler, RemotingServer
from failback.protocol.codes import RequestCode
from failback.protocol.command import RemotingCommand
from failback.protocol.headers import Header, from_ext

_MARK: Final = "handled"
_Header = TypeVar("_Header", bound=Header)
_Outcome = TypeVar("_Outcome", bound=Answer | Awaitable[Answer])
_Decoded = Callable[[Any, _Header, RemotingCommand], _Outcome]
_Raw = Callable[[Any, BrokerConnection, RemotingCommand], _Outcome]


class Handled(NamedTuple):
    """One request code and the method that answers it."""

    code: RequestCode
    header: type[Header] | None
    """What is decoded for the method; ``None``: the method decodes."""
    method: str
    main_port_only: bool


@overload
def handles(
    code: RequestCode, header: type[_Header]
) -> Callable[[_Decoded[_Header, _Outcome]], _Decoded[_Header, _Outcome]]: ...


@overload
def handles(
    code: RequestCode, header: None = None, *, main_port_only: bool = False
) -> Callable[[_Raw[_Outcome]], _Raw[_Outcome]]: ...


def handles(
    code: RequestCode, header: type[Header] | None = None, *, main_port_only: bool = False
) -> Callable[[Any], Any]:
    """Mark a method of a processor as the one that answers ``code``."""

    def mark(method: Any) -> Any:
        handled = Handled(code, header, method.__name__, main_port_only)
        method.__dict__.setdefault(_MARK, []).append(handled)
        return method

    return mark


def handled_by(processor: type) -> Iterator[Handled]:
    """Yield the request codes that a processor answers."""
    for method in vars(processor).values():
        yield from getattr(method, _MARK, ())


def register(server: RemotingServer, processor: object) -> None:
    """Let the server call the marked methods of ``processor``."""
    for code, header, name, main_port_only in handled_by(type(processor)):
        method = getattr(processor, name)
        handler = method if header is None else _decoding(header, method)
        server.handle(code, handler, main_port_only=main_port_only)


def _decoding(header: type[Header], method: Callable[[Header, RemotingCommand], Any]) -> Handler:
    def handler(_connection: BrokerConnection, request: RemotingCommand) -> Any:
        return method(from_ext(header, request.ext_fields), request)

    return handler
