"""``failback offsets``: kept offsets of two groups of eight queues, given to a returned master."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from failback.client.remoting.connection import RemotingClient
from failback.protocol import calls
from failback.protocol.clients import ConsumerData, HeartbeatData, SubscriptionData
from tests.support.carry.eight_queues import BEFORE, MEANWHILE, STORED, TOPIC, EightQueues
from tests.support.common.polling import SCALE
from tests.support.java.java_lab import Lab


@pytest.fixture
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[EightQueues]:
    lab = Lab(tmp_path / "lab")
    scale = getattr(request, "param", 0.3)
    made = await asyncio.to_thread(EightQueues, lab, "failback", scale)
    try:
        yield made
    finally:
        await made.admin.close()
        lab.dispose()


def confirming(out: str) -> list[str]:
    """The words of the command that a preview ends with, behind ``failback offsets``."""
    (line,) = re.findall(r"^To write \d+ offsets?: failback offsets (.*)$", out, re.MULTILINE)
    return str(line).split()


@pytest.mark.parametrize("pair", [1.0], indirect=True)  # a slave copies every ten seconds
async def test_one_command_gives_a_master_what_its_slave_says_of_all_queues(
    pair: EightQueues, tmp_path: Path
) -> None:
    await pair.fill()
    for _ in range(5):
        await pair.commit(pair.slave.address, MEANWHILE)
        code, out, err = await pair.said("restore", "--yes", cwd=tmp_path)
        if "Nothing to restore" not in out:  # the slave has copied its master
            break
    assert (code, "Restored 16 offsets, and read back.") == (0, out.splitlines()[-1]), err
    assert await pair.offsets(pair.master.address) == [MEANWHILE] * 16
    *_, kept = sorted(tmp_path.glob("offsets-*"))
    assert f"What slaves say is kept in {kept.name}." in err


async def test_a_preview_is_carried_out_by_its_id_alone(pair: EightQueues, tmp_path: Path) -> None:
    await pair.die()
    code, out, _ = await pair.said("save", "kept", cwd=tmp_path)
    said = [line.split()[1::2] for line in out.splitlines()[1:]]
    assert (code, said) == (0, [[pair.slave.address, "audit"], [pair.slave.address, "billing"]])
    code, _, err = await pair.said("restore", "kept", cwd=tmp_path)
    assert (code, "the master of broker-a is down" in err) == (3, True)
    pair.master.start()
    _, out, _ = await pair.said("show", "kept", "-g", "audit", "-v", "--json", cwd=tmp_path)
    (told,) = json.loads(out)["offsets"]
    assert told["table"] == {f"{TOPIC}@audit": {str(queue): MEANWHILE for queue in range(8)}}

    code, out, _ = await pair.said("restore", "kept", cwd=tmp_path)
    row = [line.split() for line in out.splitlines() if line.startswith("billing")]
    lost = str(8 * (MEANWHILE - BEFORE))
    assert row == [["billing", lost, "0", lost, "8", "0", "0", "no"]]
    assert code == 0
    words = confirming(out)[:-2]
    code, out, _ = await pair.said(*words[:-1], "0" * 12, cwd=tmp_path)
    assert (code, "is no longer what would come: nothing was written" in out) == (4, True)
    assert await pair.offsets(pair.master.address) == [BEFORE] * 16
    code, out, err = await pair.said(*words, cwd=tmp_path)
    assert (code, "Restored 16 offsets" in out) == (0, True), err
    assert await pair.offsets(pair.master.address) == [MEANWHILE] * 16
    code, out, _ = await pair.said(*words, cwd=tmp_path)
    assert (code, "Nothing to restore" in out) == (0, True)


async def test_groups_with_members_and_lower_offsets_are_left_unless_told(
    pair: EightQueues, tmp_path: Path
) -> None:
    await pair.fill()
    await pair.commit(pair.master.address, MEANWHILE)
    table = {f"{TOPIC}@billing": dict.fromkeys(range(8), STORED + 7), f"{TOPIC}@audit": {0: 1}}
    run = tmp_path / "incident-7"
    (run / "carry").mkdir(parents=True)
    (run / "run.json").write_text("{}")
    kept = run / "carry" / "10.0.0.2_10911.json"
    kept.write_text(json.dumps({"brokerName": "broker-a", "offsetTable": table}))
    data = ConsumerData("billing", "CONSUME_PASSIVELY", subscription_data_set=[
        SubscriptionData(TOPIC)
    ])  # fmt: skip
    async with RemotingClient() as member:
        beat = calls.heartbeat(HeartbeatData("a@1", [], [data])).request()
        assert (await member.invoke(pair.slave.address, beat, 5000 * SCALE)).code == 0

        code, out, _ = await pair.said("restore", "incident-7", "--yes", cwd=tmp_path)
        assert (code, "Left to members: billing." in out) == (4, True)
        assert "1 kept offset below the master's: left out" in out
        assert await pair.offsets(pair.master.address) == [MEANWHILE] * 16
        words = ["restore", "incident-7", "--yes", "--online", "--lower"]
        code, out, err = await pair.said(*words, cwd=tmp_path)
    assert (code, "Restored 9 offsets" in out) == (0, True), err
    assert "Cut at the end of the queue: 8 offsets" in out
    assert await pair.offsets(pair.master.address) == [STORED] * 8 + [1] + [MEANWHILE] * 7
