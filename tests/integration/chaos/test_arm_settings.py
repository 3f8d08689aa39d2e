"""The settings of an arm: in force at every broker, or the run is refused."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from failback.chaos.errors import GuardRefused
from failback.chaos.run import prepare
from failback.client.admin.admin import AdminClient
from tests.support.brokers.cluster_processes import ClusterProcesses


async def test_a_key_that_only_a_start_takes_up_refuses_the_run(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path) as cluster:
        view: Any = SimpleNamespace(
            members=[SimpleNamespace(pod="broker-a-0", address=cluster.broker_addr)]
        )

        def configure(**settings: str) -> None:
            session: Any = SimpleNamespace(arm=SimpleNamespace(broker_config=settings))
            prepare._configure(session, view)

        configure(fileReservedTime="24", flushConsumerOffsetInterval="5000")  # the second as it is
        late = {"fileReservedTime": "48", "flushConsumerOffsetInterval": "1000"}
        with pytest.raises(GuardRefused, match="broker-a-0: flushConsumerOffsetInterval: can't"):
            configure(**late)
        async with AdminClient([]) as admin:
            shown = await admin.broker_config(cluster.broker_addr)
        assert {key: shown[key] for key in late} == {
            "fileReservedTime": "24",
            "flushConsumerOffsetInterval": "5000",
        }
