"""A broker that this machine can't run, as its name server sees it: registered in its place."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from failback.broker.cluster.outer_api import BrokerOuterApi
from failback.broker.config.identity import BrokerIdentity
from failback.client.remoting.connection import RemotingClient
from failback.protocol.errors import FailbackError
from failback.protocol.route import TopicConfigSerializeWrapper
from tests.support.common.background_thread import Beside
from tests.support.kube_lab.namespaces import Namespace
from tests.support.operator.resources import name_server_at, properties_of

_PERIOD_SECONDS: Final = 2.0


class ForeignBroker(Beside):
    """Registers member 0 of pair 0 of a cluster at name server ``main`` while the block lasts."""

    def __init__(self, namespace: Namespace, cluster: str) -> None:
        """Read from the member's ConfigMap how it would announce itself."""
        super().__init__("foreign-broker")
        namespace.api.wait("ConfigMap", f"{cluster}-0-0")
        file = namespace.api.get("ConfigMap", f"{cluster}-0-0")["data"]["broker.conf"]
        lines = properties_of(file)
        address = f"{lines['brokerIP1']}:{lines['listenPort']}"
        self._who = BrokerIdentity(
            cluster, lines["brokerName"], 0, False, address, address, bytes(8)
        )
        self._server = name_server_at(namespace.name)

    def work(self) -> None:
        asyncio.run(self._register())

    async def _register(self) -> None:
        """Register again and again: a name server that is not up yet is asked until it is."""
        client = RemotingClient()
        try:
            while not self.stopping.is_set():
                with suppress(FailbackError, OSError):
                    await BrokerOuterApi(client, [self._server]).register_all(
                        self._who, TopicConfigSerializeWrapper()
                    )
                await asyncio.to_thread(self.stopping.wait, _PERIOD_SECONDS)
        finally:
            await client.close()
