"""Bounds on what peers may have outstanding at a broker; each is a key of broker.conf.

=================  =======================================================  ====================
bound              keys ``failbackMax...``                                  beyond it
=================  =======================================================  ====================
connections        Connections, ConnectionsPerAddress                       closed at once
unread             UnreadBytes (a connection), UnreadBytesInAll             the connection closes
unfinished         UnfinishedBytes: requests that are not whole             the largest one's closes
heldPulls          HeldPulls, HeldPullsPerConnection                        code 2
tasks              Tasks, TasksPerConnection: answers that take time        code 2
clientCalls        CallsPerClient: questions to one client                  code 2
newNames           none: topics and groups that a connection brings         code 2
=================  =======================================================  ====================
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final

from failback.broker.config.config import BrokerConfig
from failback.broker.remoting.connection import BrokerConnection
from failback.client.remoting.peer_limits import (
    UNFINISHED,
    ConnectionCounts,
    Refusals,
    Unfinished,
)
from failback.protocol.errors import FailbackError

CONNECTIONS: Final = "connections"
UNREAD: Final = "unread"
HELD_PULLS: Final = "heldPulls"
TASKS: Final = "tasks"
CLIENT_CALLS: Final = "clientCalls"
NEW_NAMES: Final = "newNames"
BOUNDS: Final = (CONNECTIONS, UNREAD, UNFINISHED, HELD_PULLS, TASKS, CLIENT_CALLS, NEW_NAMES)
NAMES_AT_ONCE: Final = 1000
"""Or as many as one heartbeat may have: GroupsPerConnection."""
NAMES_PER_SECOND: Final = 50


class Busy(FailbackError):
    """A bound is reached: answered with SYSTEM_BUSY, upon which clients wait and try again."""


class PeerLimits:
    """The bounds of one broker, and counts of what they refused."""

    def __init__(self, config: BrokerConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self.config = config
        self._clock = clock
        self.refusals = Refusals(BOUNDS)
        self.connections = ConnectionCounts(
            lambda: config.failback_max_connections,
            lambda: config.failback_max_connections_per_address,
        )
        self._unfinished = Unfinished[BrokerConnection](
            lambda: config.failback_max_unfinished_bytes
        )

    def refuse(self, bound: str, connection: BrokerConnection, what: str) -> Busy:
        """Count a refusal; return the error that answers the request."""
        self.refusals.note(bound, connection.address, what)
        return Busy(what)

    def admits(self, connection: BrokerConnection) -> bool:
        """Count a new connection; false when it has to be closed."""
        refusal = self.connections.enter(connection.host)
        if refusal is not None:
            self.refusals.note(CONNECTIONS, connection.address, refusal)
            return False
        connection.is_counted = True
        return True

    def gone(self, connection: BrokerConnection) -> None:
        self._unfinished.note(connection, 0)
        if connection.is_counted:
            connection.is_counted = False
            self.connections.leave(connection.host)

    @property
    def unfinished_bytes(self) -> int:
        """Bytes of incomplete requests."""
        return self._unfinished.total

    def check_unfinished(self, connection: BrokerConnection, size: int) -> None:
        """Count the bytes of an incomplete request.

        Above the bound of all connections together, close the one with the most bytes."""
        found = self._unfinished.note(connection, size)
        if found is not None:
            self.refusals.note(UNFINISHED, found[0].address, found[1])
            found[0].abort()

    def check_unread(self, connection: BrokerConnection, unread_bytes: int) -> None:
        """Close a connection whose peer has left too many bytes of answers unread."""
        most = self.config.failback_max_unread_bytes
        if unread_bytes > most:
            what = f"it left {unread_bytes} bytes unread, at most {most}"
            self.refusals.note(UNREAD, connection.address, what)
            connection.abort()

    def check_unread_in_all(self, connections: Iterable[BrokerConnection]) -> None:
        """Close connections, those with most unread bytes first, down to the bound of all."""
        waiting = [(each.unread_bytes(), each) for each in connections if each.write_paused]
        total = sum(size for size, _ in waiting)
        most = self.config.failback_max_unread_bytes_in_all
        for size, connection in sorted(waiting, key=lambda each: each[0], reverse=True):
            if total <= most:
                return
            what = f"it left {size} bytes unread, all together {total}, at most {most}"
            self.refusals.note(UNREAD, connection.address, what)
            connection.abort()
            total -= size

    def begin_task(self, connection: BrokerConnection, under_way: int) -> None:
        """Count an answer that takes time.

        Raises:
            Busy: There are too many of them, in all or for this peer.
        """
        most = self.config.failback_max_tasks
        if under_way >= most:
            raise self.refuse(TASKS, connection, f"{under_way} requests are under way")
        most = self.config.failback_max_tasks_per_connection
        if connection.tasks >= most:
            what = f"{connection.tasks} requests of this connection are under way, at most {most}"
            raise self.refuse(TASKS, connection, what)
        connection.tasks += 1

    def take_new_names(self, connection: BrokerConnection, count: int) -> None:
        """Count topics and groups that a request brings.

        Raises:
            Busy: They are more than this connection may bring now.
        """
        most = max(NAMES_AT_ONCE, self.config.failback_max_groups_per_connection)
        (spent, at), now = connection.new_names, self._clock()
        spent = max(0.0, spent - (now - at) * NAMES_PER_SECOND) + count
        if spent > most:
            what = f"{count} new topics or groups are too many now: at most {most} at once"
            what = f"{what}, then {NAMES_PER_SECOND} a second"
            raise self.refuse(NEW_NAMES, connection, what)
        connection.new_names = spent, now
