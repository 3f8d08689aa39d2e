"""Questions of a command to the name servers and brokers of a cluster."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

from failback.cli.shared.output import note
from failback.common.times import doubt, read_ms
from failback.protocol.errors import (
    ConfigError,
    FailbackError,
    RemotingConnectError,
    RemotingError,
    UnreadableAnswer,
)

if TYPE_CHECKING:
    from failback.client.admin.admin import AdminClient
    from failback.client.remoting.guarded.cluster import Cluster
    from failback.protocol.route import TopicRouteData

END_OF_QUEUES: Final = -1
"""The time that means the end of every queue."""
ANSWER_MS: Final = 5000.0
"""For so long each question waits for its answer."""
_Answer = TypeVar("_Answer")


class NotThere(FailbackError):
    """What was asked about is nowhere: the answer is no, not a mistake of the program."""

    exit_code: ClassVar[int] = 1


class Unreachable(FailbackError):
    """No broker or name server answered."""

    exit_code: ClassVar[int] = 3


def is_address(text: str) -> bool:
    """Tell whether a text is HOST:PORT; a broker's name has no colon."""
    return ":" in text


def parse_time(text: str, option: str = "--time") -> int:
    """Return milliseconds since 1970, or -1 for ``now``: the end of each queue.

    Raises:
        ConfigError: It is neither.
    """
    if text == "now":
        return END_OF_QUEUES
    try:
        return read_ms(text)
    except ValueError as error:
        raise ConfigError(option, str(error)) from None


def meant_time(text: str, option: str = "--time", *, yes: bool = False) -> int:
    """Return what :func:`parse_time` does, of a time that messages can have.

    Args:
        text: What was typed.
        option: Its name, for messages.
        yes: Whether any time is taken as it is.

    Raises:
        ConfigError: It is no time, or one that cannot be meant: says which may be.
    """
    found = parse_time(text, option)
    if text == "now":
        return found
    why = "" if yes else doubt(found, time.time_ns() // 1_000_000)
    if why and found == END_OF_QUEUES:  # as Apache's tools call it
        why += ", and the end of each queue is now"
    if why:
        raise ConfigError(option, f"{why}; --yes takes it all the same")
    return max(0, found)


def ask(cluster: Cluster, question: Callable[[AdminClient], Awaitable[_Answer]]) -> _Answer:
    """Ask with an admin client of a cluster; a line says which name server does not help.

    Raises:
        Unreachable: No name server answers, or not the broker that was asked.
    """
    import asyncio

    from failback.client.admin.admin import AdminClient
    from failback.client.remoting.connection import RemotingSettings

    settings = RemotingSettings(access=cluster.access)

    async def go() -> _Answer:
        async with AdminClient(
            cluster.name_servers, timeout_ms=ANSWER_MS, settings=settings, say=note
        ) as admin:
            return await question(admin)

    try:
        return asyncio.run(go())
    except (RemotingError, UnreadableAnswer) as error:
        raise _unreachable(error, cluster.name_servers) from error


def _unreachable(error: Exception, name_servers: Sequence[str]) -> Unreachable:
    if isinstance(error, RemotingConnectError):
        what = "name server" if error.addr in name_servers else "broker"
        return Unreachable(f"cannot reach {what} {error.addr}: {error.why}")
    return Unreachable(str(error))


async def route_of(admin: AdminClient, topic: str) -> TopicRouteData:
    """Return where a topic lives.

    Raises:
        NotThere: No name server knows it.
    """
    from failback.common.text import did_you_mean
    from failback.protocol.codes import ResponseCode
    from failback.protocol.errors import BrokerError

    try:
        return await admin.route(topic)
    except BrokerError as error:
        if error.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        near = did_you_mean(topic, await admin.topic_list())
        raise NotThere(f'topic "{topic}" is on no broker{near}') from error
