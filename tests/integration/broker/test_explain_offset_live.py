"""``failback explain-offset --live`` and the command it prints, on a real broker."""

from __future__ import annotations

import asyncio
import json
import shlex
from pathlib import Path

import pytest

from failback.cli.__main__ import main
from failback.client.admin.admin import AdminClient
from failback.protocol.codes import RequestCode
from failback.protocol.headers import SendMessageRequestHeader
from failback.protocol.route import TopicConfig
from tests.support.brokers.cluster_processes import ClusterProcesses
from tests.support.common.polling import wait_until

TOPIC, GROUP = "orders", "billing"


def test_the_printed_command_stores_the_offset(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ClusterProcesses(tmp_path / "cluster") as cluster:
        asyncio.run(_prepare(cluster))
        where = ("--namesrv", cluster.namesrv_addr)
        ask = ("explain-offset", GROUP, TOPIC, "1", "--live", "--json", *where)
        assert main(ask) == 0
        found = json.loads(capsys.readouterr().out)
        held = {step["place"]: step["offset"] for step in found["steps"]}
        assert (held["master table"], held["answer"]) == (7, 7)
        assert found["safe_offset"] == 7
        assert "client memory" in found["unseen"]
        words = shlex.split(found["command"])[1:]
        assert main([*words[:-1], "3", *where]) == 0
        capsys.readouterr()

        def safe_offset() -> int:
            assert main(ask) == 0
            answer = json.loads(capsys.readouterr().out)
            tables = {step["place"]: step["offset"] for step in answer["steps"]}
            assert tables["master table"] == 3
            return int(answer["safe_offset"])

        wait_until(lambda: safe_offset() == 3, "the file, which may hold 7, follows the table")
        assert main(("explain-offset", GROUP, TOPIC, "5", "--live", *where)) == 2
        assert "queue 5 of orders" in capsys.readouterr().err


async def _prepare(cluster: ClusterProcesses) -> None:
    async with AdminClient([cluster.namesrv_addr]) as admin:
        await admin.create_topic(cluster.broker_addr, TopicConfig(TOPIC, 2, 2))
        header = SendMessageRequestHeader("PG", TOPIC, "TBW102", 4, 1, 0, 1, 0, "", 0)
        for _ in range(10):
            await admin.ask(cluster.broker_addr, RequestCode.SEND_MESSAGE, header, b"x")
        await admin.update_offset(cluster.broker_addr, GROUP, TOPIC, 1, 7)
