"""A broker that this machine can't run, as its name server sees it: registered in its place."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from types import TracebackType
from typing import Final

from failback.broker.identity import BrokerIdentity
from failback.broker.outer_api import BrokerOuterApi
from failback.client.connection import RemotingClient
from failback.protocol.errors import FailbackError
from failback.protocol.route import TopicConfigSerializeWrapper
from tests.support.kube_lab.namespaces import Namespace

_PERIOD_SECONDS: Final = 2.0


class ForeignBroker:
    """Registers member 0 of pair 0 of a cluster at name server ``main`` while the block lasts."""

    def __init__(self, namespace: Namespace, cluster: str) -> None:
        """Read from the member's ConfigMap how it would announce itself."""
        namespace.api.wait("ConfigMap", f"{cluster}-0-0")
        file = namespace.api.get("ConfigMap", f"{cluster}-0-0")["data"]["broker.conf"]
        lines = dict(line.partition("=")[::2] for line in file.splitlines() if "=" in line)
        address = f"{lines['brokerIP1']}:{lines['listenPort']}"
        self._who = BrokerIdentity(
            cluster, lines["brokerName"], 0, False, address, address, bytes(8)
        )
        self._server = f"main-ns-0.main-ns.{namespace.name}.svc.cluster.local:9876"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="foreign-broker", daemon=True)

    def __enter__(self) -> ForeignBroker:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join(30)

    def _work(self) -> None:
        asyncio.run(self._register())

    async def _register(self) -> None:
        """Register again and again: a name server that is not up yet is asked until it is."""
        client = RemotingClient()
        try:
            while not self._stop.is_set():
                with suppress(FailbackError, OSError):
                    await BrokerOuterApi(client, [self._server]).register_all(
                        self._who, TopicConfigSerializeWrapper()
                    )
                await asyncio.to_thread(self._stop.wait, _PERIOD_SECONDS)
        finally:
            await client.close()
