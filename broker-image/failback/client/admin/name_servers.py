"""Asks all name servers of a cluster, joins what they know, and says which of them did not help.

One that is empty, silent, of another cluster or that knows a part takes nothing away: the others
are asked at the same time, and once one knows something a silent one is waited for one second.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from failback.client.remoting.connection import RemotingClient
from failback.protocol.calls import Call
from failback.protocol.codes import ResponseCode
from failback.protocol.errors import (
    BrokerError,
    ProtocolError,
    RemotingConnectError,
    RemotingError,
)
from failback.protocol.route import BrokerData, ClusterInfo, TopicRouteData

logger = logging.getLogger(__name__)

T = TypeVar("T")
LATE_SECONDS: Final = 1.0
PASSED_OVER_SECONDS: Final = 30.0
_NAMED: Final = 3


class AllNameServers:
    """The name servers of one cluster; a name stands for all addresses that it has now."""

    def __init__(
        self,
        client: RemotingClient,
        addresses: Sequence[str],
        say: Callable[[str], None] = logger.warning,
    ) -> None:
        """Make it; ``say`` takes each sentence about a name server once, while it stays so."""
        self._client = client
        self._addresses = tuple(addresses)
        self._say = say
        self._said: dict[str, str] = {}
        self._silent_until: dict[str, float] = {}
        self._names: dict[str, str] = {}

    async def ask(
        self,
        call: Call[T],
        timeout_ms: float,
        parts: Callable[[T], Mapping[str, Any]],
        join: Callable[[Sequence[T]], T],
    ) -> T:
        """Return what the name servers answer together.

        Args:
            call: The question.
            timeout_ms: For so long an answer is waited for while no name server knows anything.
            parts: What an answer knows, by name; two name servers agree where values are equal.
            join: Makes one answer of several; of two values the first stays.

        Raises:
            RemotingError, BrokerError, ProtocolError: None answered: "no route" where one said so.
        """
        asked = await self._now()
        answers, failures = await self._answers(asked, call, timeout_ms, parts)
        if not answers:
            first = self._named(_first_failure(failures))
            failures.clear()
            try:
                raise first
            finally:
                del first  # its traceback holds this frame
        for addr, failure in failures.items():
            is_unknown = getattr(failure, "code", None) == ResponseCode.TOPIC_NOT_EXIST
            what = "has no route of a topic that others know"
            self._tell(addr, what if is_unknown else f"is left out: {failure}")
        found = [answers[addr] for addr in asked if addr in answers]
        joined = found[0] if len(found) == 1 else join(found)
        for addr, each in answers.items():
            self._tell(addr, _lacks(parts(each), parts(joined)))
        return joined

    async def _now(self) -> list[str]:
        """Return the addresses to ask: without silent ones, unless all of them are."""
        now = asyncio.get_running_loop().time()
        every = await self.every()
        if not every:
            raise RemotingConnectError("name server", "no address is configured")
        return [addr for addr in every if self._silent_until.get(addr, now) <= now] or every

    async def every(self) -> list[str]:
        """Return all addresses that the names stand for now."""
        resolved = await asyncio.gather(*map(self._client.addresses_of, self._addresses))
        self._names = {
            addr: name
            for name, each in zip(self._addresses, resolved, strict=True)
            for addr in each
        }
        return list(self._names)

    async def _answers(
        self,
        asked: Sequence[str],
        call: Call[T],
        timeout_ms: float,
        parts: Callable[[T], Mapping[str, Any]],
    ) -> tuple[dict[str, T], dict[str, Exception]]:
        tasks = {asyncio.create_task(self._client.call(a, call, timeout_ms)): a for a in asked}
        answers: dict[str, T] = {}
        failures: dict[str, Exception] = {}
        pending = set(tasks)
        until = asyncio.get_running_loop().time
        end: float | None = None
        try:
            while pending and (end is None or until() < end):
                done, pending = await asyncio.wait(
                    pending,
                    timeout=None if end is None else end - until(),
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for task in done:
                    error = task.exception()  # raised here it would hold this frame, which holds it
                    if isinstance(error, (RemotingError, BrokerError, ProtocolError)):
                        failures[tasks[task]] = error
                        continue
                    answers[tasks[task]] = answer = task.result()
                    end = end or (until() + LATE_SECONDS if parts(answer) else None)
        finally:
            for task in pending:
                task.cancel()
        for task in pending:
            failures[tasks[task]] = RemotingError(f"no answer within {LATE_SECONDS:g} s")
        for addr, failure in failures.items():
            if isinstance(failure, RemotingError):
                self._silent_until[addr] = until() + PASSED_OVER_SECONDS
        return answers, failures

    def _named(self, failure: Exception) -> Exception:
        """Return a failed connection under the name that was configured."""
        if isinstance(failure, RemotingConnectError):
            name = self._names[failure.addr]
            if name != failure.addr:
                return RemotingConnectError(name, f"{failure.addr}: {failure.why}")
        return failure

    def _tell(self, addr: str, what: str) -> None:
        if what and self._said.get(addr) != what:
            self._say(f"name server {addr} {what}")
        self._said[addr] = what


def _first_failure(failures: Mapping[str, Exception]) -> Exception:
    """Return "no route" where a name server said so, else what the first one met."""
    every = list(failures.values())
    code = ResponseCode.TOPIC_NOT_EXIST
    return next((each for each in every if getattr(each, "code", None) == code), every[0])


def _lacks(own: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    absent = sorted(known.keys() - own.keys())
    if absent:
        more = f" and {len(absent) - _NAMED} more" if len(absent) > _NAMED else ""
        return f"does not know {', '.join(absent[:_NAMED])}{more}"
    other = sorted(name for name in own if own[name] != known.get(name))
    return f"lists other members of {', '.join(other[:_NAMED])} than the others" * bool(other)


def brokers_of_route(route: TopicRouteData) -> dict[str, dict[int, str]]:
    return {each.broker_name: each.broker_addrs for each in route.broker_datas}


def brokers_of_cluster(info: ClusterInfo) -> dict[str, dict[int, str]]:
    return {name: each.broker_addrs for name, each in info.broker_addr_table.items()}


def join_routes(found: Sequence[TopicRouteData]) -> TopicRouteData:
    """Join routes of one topic."""
    queues = {each.broker_name: each for route in reversed(found) for each in route.queue_datas}
    return TopicRouteData(
        list(queues.values()),
        _join_brokers([route.broker_datas for route in found]),
        {key: each for route in reversed(found) for key, each in route.filter_server_table.items()},
        next((route.order_topic_conf for route in found if route.order_topic_conf), None),
    )


def join_clusters(found: Sequence[ClusterInfo]) -> ClusterInfo:
    """Join lists of brokers."""
    brokers = _join_brokers([list(info.broker_addr_table.values()) for info in found])
    clusters: dict[str, dict[str, None]] = {}
    for info in found:
        for cluster, names in info.cluster_addr_table.items():
            clusters.setdefault(cluster, {}).update(dict.fromkeys(names))
    table = {each.broker_name: each for each in brokers}
    own = {
        cluster: [name for name in names if name not in table or table[name].cluster == cluster]
        for cluster, names in clusters.items()
    }
    return ClusterInfo(table, own)


def join_topics(found: Sequence[list[str]]) -> list[str]:
    """Join lists of topics."""
    return list(dict.fromkeys(topic for each in found for topic in each))


def _join_brokers(found: Sequence[Sequence[BrokerData]]) -> list[BrokerData]:
    """Join members of pairs; of two addresses of an id, or ids of an address, the first stays."""
    joined: dict[str, BrokerData] = {}
    for each in (each for brokers in found for each in brokers):
        first = joined.get(each.broker_name)
        if first is None:
            joined[each.broker_name] = BrokerData(
                each.cluster, each.broker_name, dict(each.broker_addrs)
            )
        elif first.cluster == each.cluster:  # another cluster's pair of that name is not this one
            for number, addr in each.broker_addrs.items():
                if addr not in first.broker_addrs.values():
                    first.broker_addrs.setdefault(number, addr)
    return list(joined.values())
