"""What a broker asks of others: name servers to list it, its master for metadata.

Source: BrokerOuterAPI, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from failback.broker.config.identity import BrokerIdentity
from failback.client.remoting.connection import RemotingClient
from failback.client.remoting.guarded.signing import is_refusal
from failback.common.numbers import whole
from failback.protocol import calls
from failback.protocol.calls import Call, any_request
from failback.protocol.codes import RequestCode
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import BrokerError, ProtocolError, RemotingError
from failback.protocol.headers import (
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnregisterBrokerRequestHeader,
    from_ext,
)
from failback.protocol.route import (
    ConsumerOffsetTable,
    RegisterBrokerBody,
    SubscriptionGroupWrapper,
    TopicConfigSerializeWrapper,
)
from failback.protocol.stats import KVTable

logger = logging.getLogger(__name__)

T = TypeVar("T")
_CRC_MASK: Final = 0x7FFF_FFFF


class RegisterResult(NamedTuple):
    """A name server's answer to a registration."""

    name_server: str
    ha_server_addr: str | None
    """The master's HA address; only for a slave whose master is registered."""
    master_addr: str | None
    order_topics: Mapping[str, str] | None
    """Namespace ORDER_TOPIC_CONFIG; ``None`` when the answer had no body."""


def fast_address(address: str) -> str:
    """Return the address two ports below, where everything but pulls is served as well."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) - 2}"


class BrokerOuterApi:
    """Outgoing calls of one broker. Times are milliseconds, already scaled by the caller."""

    def __init__(
        self, client: RemotingClient, name_servers: Sequence[str], *, timeout_ms: float = 3_000
    ) -> None:
        self._client = client
        self._timeout_ms = timeout_ms
        self._problems: dict[str, str] = {}
        """Why a name server did not take the last registration, as it was logged."""
        self.take(name_servers)

    def take(self, name_servers: Sequence[str]) -> None:
        """Use these name servers from now on; the addresses of names are looked up later."""
        self._configured = self.name_servers = tuple(name_servers)

    async def look_up(self) -> None:
        """Let :attr:`name_servers` be all addresses that the configured names have now."""
        configured = self._configured
        found = await asyncio.gather(*map(self._client.addresses_of, configured))
        if configured == self._configured:
            self.name_servers = tuple(dict.fromkeys(addr for each in found for addr in each))

    async def register_all(
        self,
        identity: BrokerIdentity,
        topics: TopicConfigSerializeWrapper | bytes,
        *,
        oneway: bool = False,
        compressed: bool = False,
        timeout_ms: float = 6_000,
    ) -> list[RegisterResult]:
        """Register with every name server at once; failures are logged and left out.

        ``topics`` may be JSON already.

        The results are in the order of :attr:`name_servers`; one-way calls have none.
        """
        call = _registration(identity, topics, compressed)
        answers = await asyncio.gather(
            *(
                self._register(name_server, call, oneway, timeout_ms)
                for name_server in self.name_servers
            )
        )
        return [answer for answer in answers if answer is not None]

    async def register_with(
        self,
        name_server: str,
        identity: BrokerIdentity,
        topics: TopicConfigSerializeWrapper | bytes,
        *,
        compressed: bool = False,
        timeout_ms: float = 6_000,
    ) -> RegisterResult | None:
        """Register with one name server; a failure is logged and gives ``None``."""
        call = _registration(identity, topics, compressed)
        return await self._register(name_server, call, False, timeout_ms)

    async def answers(self, name_server: str) -> bool:
        """Tell whether a name server answers, on a connection that nothing else waits for."""
        async with RemotingClient(settings=self._client.settings) as client:
            client.names = self._client.names
            try:
                await client.call(name_server, calls.get_kv("failback", "alive"), self._timeout_ms)
            except BrokerError:  # it has no such key
                return True
            except (RemotingError, ProtocolError):
                return False
        return True

    async def unregister_all(self, identity: BrokerIdentity) -> None:
        """Take this broker off every name server's tables; failures are logged."""
        header = UnregisterBrokerRequestHeader(
            broker_name=identity.broker_name,
            broker_addr=identity.address,
            cluster_name=identity.cluster_name,
            broker_id=identity.broker_id,
        )
        call = any_request(RequestCode.UNREGISTER_BROKER, header)
        await asyncio.gather(
            *(self._unregister(name_server, call) for name_server in self.name_servers)
        )

    async def get_all_topic_config(self, master: str) -> TopicConfigSerializeWrapper:
        """Return the master's topics, asked at its fast port as the original does."""
        return await self._ask(fast_address(master), calls.all_topic_config())

    async def get_all_consumer_offset(self, broker: str) -> ConsumerOffsetTable:
        """Return the offsets that a broker has in memory, and what it knows to be deleted."""
        return await self._ask(broker, calls.offset_table())

    async def max_offset(self, broker: str, topic: str, queue_id: int) -> int:
        """Return the end of a queue on another broker."""
        return await self._ask(broker, calls.max_offset(topic, queue_id))

    async def record_at(self, broker: str, physical_offset: int) -> bytes:
        """Return the record that another broker has at a place of its log."""
        return await self._ask(broker, calls.view_record(physical_offset))

    async def get_all_delay_offset(self, master: str) -> bytes:
        """Return the master's delay offsets as it wrote them."""
        return await self._ask(master, calls.delay_offset_file())

    async def get_all_subscription_group(self, master: str) -> SubscriptionGroupWrapper:
        """Return the master's consumer groups."""
        return await self._ask(master, calls.all_groups())

    async def get_boot_ms(self, broker: str) -> int:
        """Return when a broker was started, in its own Unix milliseconds: the mark of one life.

        Raises:
            ProtocolError: Its runtime information does not say.
        """
        return await self._number_of(broker, "bootTimestamp")

    async def get_log_end(self, broker: str) -> int:
        """Return the physical offset at which a broker's log ends. Raises as get_boot_ms."""
        return await self._number_of(broker, "commitLogMaxOffset")

    async def _number_of(self, broker: str, key: str) -> int:
        text = (await self._ask(broker, calls.runtime_info())).get(key, "")
        found = whole(text)
        if found is None:
            raise ProtocolError(f"runtime information of {broker} has {key} {text[:60]!r}")
        return found

    async def slaves_of(self, broker_name: str) -> frozenset[str]:
        """Return the slaves of a pair that any name server lists; failures are logged."""
        answers = await asyncio.gather(
            *(self._slaves_of(broker_name, name_server) for name_server in self.name_servers)
        )
        return frozenset().union(*answers)

    async def _slaves_of(self, broker_name: str, name_server: str) -> set[str]:
        try:
            info = await self._ask(name_server, calls.cluster_info())
        except (RemotingError, BrokerError, ProtocolError) as error:
            logger.warning("name server %s does not list brokers: %s", name_server, error)
            return set()
        members = info.broker_addr_table.get(broker_name)
        if members is None:
            return set()
        return {address for number, address in members.broker_addrs.items() if number != 0}

    async def _ask(self, address: str, call: Call[T], timeout_ms: float | None = None) -> T:
        timeout_ms = timeout_ms or self._timeout_ms
        return call.result(await self._client.invoke(address, call.request(), timeout_ms), address)

    async def _register(
        self,
        name_server: str,
        call: Call[RemotingCommand],
        oneway: bool,
        timeout_ms: float,
    ) -> RegisterResult | None:
        try:
            if oneway:
                await self._client.oneway(name_server, call.request(oneway=True))
                return None
            response = await self._ask(name_server, call, timeout_ms)
            answer = from_ext(RegisterBrokerResponseHeader, response.ext_fields)
            order_topics = KVTable.from_json(response.body).table if response.body else None
        except (RemotingError, BrokerError, ProtocolError) as error:
            self._note(name_server, error)
            return None
        self._problems.pop(name_server, None)
        return RegisterResult(name_server, answer.ha_server_addr, answer.master_addr, order_topics)

    def _note(self, name_server: str, error: Exception) -> None:
        """Log why a registration failed, once until it is another reason."""
        is_refused = isinstance(error, BrokerError) and is_refusal(error)
        hint = " (a broker's is tools.yml, with an admin's key)" if is_refused else ""
        problem = f"{error}{hint}"
        if self._problems.get(name_server) != problem:
            logger.warning("registration with name server %s failed: %s", name_server, problem)
        self._problems[name_server] = problem

    async def _unregister(self, name_server: str, call: Call[RemotingCommand]) -> None:
        try:
            await self._ask(name_server, call)
        except (RemotingError, BrokerError) as error:
            logger.warning("leaving name server %s failed: %s", name_server, error)


def _registration(
    identity: BrokerIdentity, topics: TopicConfigSerializeWrapper | bytes, compressed: bool
) -> Call[RemotingCommand]:
    if isinstance(topics, bytes):
        body = b'{"filterServerList":[],"topicConfigSerializeWrapper":%b}' % topics
    else:
        listing = RegisterBrokerBody(topic_config_serialize_wrapper=topics)
        body = listing.to_compressed() if compressed else listing.to_json()
    header = RegisterBrokerRequestHeader(
        broker_name=identity.broker_name,
        broker_addr=identity.address,
        cluster_name=identity.cluster_name,
        ha_server_addr=identity.ha_address,
        broker_id=identity.broker_id,
        compressed=compressed,
        body_crc32=zlib.crc32(body) & _CRC_MASK,
    )
    return any_request(RequestCode.REGISTER_BROKER, header, body)
