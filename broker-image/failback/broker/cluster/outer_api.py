"""What a broker asks of others: name servers to list it, its master for metadata.

Source: BrokerOuterAPI, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from failback.broker.config.identity import BrokerIdentity
from failback.broker.metadata.offsets.consumer_offset_manager import (
    OffsetTable,
    decode_offset_table,
)
from failback.client.remoting.connection import RemotingClient
from failback.protocol.codes import RequestCode, ResponseCode
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import BrokerError, ProtocolError, RemotingError
from failback.protocol.headers import (
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnregisterBrokerRequestHeader,
    from_ext,
)
from failback.protocol.route import (
    ClusterInfo,
    KVTable,
    RegisterBrokerBody,
    SubscriptionGroupWrapper,
    TopicConfigSerializeWrapper,
)

logger = logging.getLogger(__name__)

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
        self.name_servers = tuple(name_servers)
        self._timeout_ms = timeout_ms

    async def register_all(
        self,
        identity: BrokerIdentity,
        topics: TopicConfigSerializeWrapper,
        *,
        oneway: bool = False,
        compressed: bool = False,
        timeout_ms: float = 6_000,
    ) -> list[RegisterResult]:
        """Register with every name server at once; failures are logged and left out.

        The results are in the order of :attr:`name_servers`; one-way calls have none.
        """
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
        answers = await asyncio.gather(
            *(
                self._register(name_server, header, body, oneway, timeout_ms)
                for name_server in self.name_servers
            )
        )
        return [answer for answer in answers if answer is not None]

    async def unregister_all(self, identity: BrokerIdentity) -> None:
        """Take this broker off every name server's tables; failures are logged."""
        header = UnregisterBrokerRequestHeader(
            broker_name=identity.broker_name,
            broker_addr=identity.address,
            cluster_name=identity.cluster_name,
            broker_id=identity.broker_id,
        )
        await asyncio.gather(
            *(self._unregister(name_server, header) for name_server in self.name_servers)
        )

    async def get_all_topic_config(self, master: str) -> TopicConfigSerializeWrapper:
        """Return the master's topics, asked at its fast port as the original does."""
        body = await self._ask(fast_address(master), RequestCode.GET_ALL_TOPIC_CONFIG)
        return TopicConfigSerializeWrapper.from_json(body)

    async def get_all_consumer_offset(self, master: str) -> OffsetTable:
        """Return the offset table that the master has in memory."""
        return decode_offset_table(await self._ask(master, RequestCode.GET_ALL_CONSUMER_OFFSET))

    async def get_all_delay_offset(self, master: str) -> bytes:
        """Return the master's delay offsets as it wrote them."""
        return await self._ask(master, RequestCode.GET_ALL_DELAY_OFFSET)

    async def get_all_subscription_group(self, master: str) -> SubscriptionGroupWrapper:
        """Return the master's consumer groups."""
        body = await self._ask(master, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        return SubscriptionGroupWrapper.from_json(body)

    async def get_boot_ms(self, broker: str) -> int:
        """Return when a broker was started, in its own Unix milliseconds: the mark of one life.

        Raises:
            ProtocolError: Its runtime information does not say.
        """
        body = await self._ask(broker, RequestCode.GET_BROKER_RUNTIME_INFO)
        text = KVTable.from_json(body).table.get("bootTimestamp", "")
        if not text.isascii() or not text.isdigit():
            raise ProtocolError(f"runtime information of {broker} has bootTimestamp {text!r}")
        return int(text)

    async def slaves_of(self, broker_name: str) -> frozenset[str]:
        """Return the slaves of a pair that any name server lists; failures are logged."""
        answers = await asyncio.gather(
            *(self._slaves_of(broker_name, name_server) for name_server in self.name_servers)
        )
        return frozenset().union(*answers)

    async def _slaves_of(self, broker_name: str, name_server: str) -> set[str]:
        try:
            body = await self._ask(name_server, RequestCode.GET_BROKER_CLUSTER_INFO)
            members = ClusterInfo.from_json(body).broker_addr_table.get(broker_name)
        except (RemotingError, BrokerError, ProtocolError) as error:
            logger.warning("name server %s does not list brokers: %s", name_server, error)
            return set()
        if members is None:
            return set()
        return {address for number, address in members.broker_addrs.items() if number != 0}

    async def _ask(self, address: str, code: RequestCode) -> bytes:
        response = await self._client.invoke(
            address, RemotingCommand.request(code), self._timeout_ms
        )
        if response.code != ResponseCode.SUCCESS:
            raise BrokerError(response.code, response.remark, address)
        return response.body

    async def _register(
        self,
        name_server: str,
        header: RegisterBrokerRequestHeader,
        body: bytes,
        oneway: bool,
        timeout_ms: float,
    ) -> RegisterResult | None:
        request = RemotingCommand.request(RequestCode.REGISTER_BROKER, header, body, oneway=oneway)
        try:
            if oneway:
                await self._client.oneway(name_server, request)
                return None
            response = await self._client.invoke(name_server, request, timeout_ms)
            if response.code != ResponseCode.SUCCESS:
                raise BrokerError(response.code, response.remark, name_server)
            answer = from_ext(RegisterBrokerResponseHeader, response.ext_fields)
            order_topics = KVTable.from_json(response.body).table if response.body else None
        except (RemotingError, BrokerError, ProtocolError) as error:
            logger.warning("registration with name server %s failed: %s", name_server, error)
            return None
        return RegisterResult(name_server, answer.ha_server_addr, answer.master_addr, order_topics)

    async def _unregister(self, name_server: str, header: UnregisterBrokerRequestHeader) -> None:
        request = RemotingCommand.request(RequestCode.UNREGISTER_BROKER, header)
        try:
            response = await self._client.invoke(name_server, request, self._timeout_ms)
            if response.code != ResponseCode.SUCCESS:
                raise BrokerError(response.code, response.remark, name_server)
        except (RemotingError, BrokerError) as error:
            logger.warning("leaving name server %s failed: %s", name_server, error)
