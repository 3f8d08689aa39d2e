"""The consume-log hook: what a consumer and a producer do is found in the hot log afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from failback.client.consumelog.hook import LogHook
from failback.client.consumelog.hot_format import ConsumeLogError
from failback.client.consumelog.reader import read_hot
from failback.client.consumelog.schema import TABLE_OF_CODE, order
from failback.client.consumelog.writer import ConsumeLog
from failback.client.model import ConsumeFrom, ConsumeResult, Message
from failback.protocol.body import MessageQueue
from failback.protocol.message import MessageExt
from tests.support.clients.client_lab import GROUP, TOPIC, Collector, Lab
from tests.support.common.virtual_time import until, virtual_time

LAB_ID = "00010002-0000000000a"


def rows(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Every row of the logs in ``folder`` by table; checks that ``seq`` has no gaps."""
    found: dict[str, list[dict[str, Any]]] = {}
    seq = 0
    for path in sorted(folder.glob("*.fblog")):
        log = read_hot(path)
        assert not log.torn
        for code, number, _, _, *values in log.records:
            seq += 1
            assert number == seq
            table = TABLE_OF_CODE[code].name
            columns = order(table)
            padded = [*values, *[None] * (len(columns) - len(values))]
            found.setdefault(table, []).append(dict(zip(columns, padded, strict=True)))
    return found


def open_log(folder: Path, proc_no: int = 3) -> ConsumeLog:
    return ConsumeLog(folder, run="r", proc_no=proc_no, role="consumer", host="h", sync_seconds=0)


@virtual_time
async def test_all_tables_of_a_life_of_consuming(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    hook = LogHook(log, lambda message: ("key-1", 7))
    handler = Collector()
    handler.answer = lambda message: (
        ConsumeResult.SUCCESS if message.reconsume_times else ConsumeResult.RECONSUME_LATER
    )
    async with Lab() as lab:
        (master,) = lab.pair()
        member = lab.member(handler=handler, consume_from=ConsumeFrom.FIRST_OFFSET)
        member.consumer._hook = hook
        await member.consumer.start()
        producer, _ = await lab.producer()
        await producer.send(Message(TOPIC, b"x", "k", properties={"LAB_ID": LAB_ID}))
        await until(lambda: len(handler.got) == 2)
        await member.consumer.shutdown()
        client_id = member.consumer.client_id
        pqes = {q.topic: p.pqe for q, p in member.consumer.held_queues.items()}
    log.close()
    found = rows(tmp_path)
    first, again = found["deliver"]
    assert (first["did"], first["grp"], first["client_id"]) == (3 << 40 | 1, GROUP, client_id)
    assert (first["inc"], first["pqe"], first["broker"]) == (3, pqes[TOPIC], "broker-a")
    assert (first["ptopic"], first["ltopic"], first["qoff"], first["rt"]) == (TOPIC, TOPIC, 0, 0)
    assert (first["lane"], first["lseq"], first["okey"], first["kseq"]) == (65538, 10, "key-1", 7)
    assert (again["ptopic"], again["ltopic"], again["rt"]) == (f"%RETRY%{GROUP}", TOPIC, 1)
    assert first["omid"] == bytes.fromhex(handler.got[0][1].offset_msg_id)
    assert again["origin_id"] == handler.got[0][1].offset_msg_id
    pull_ids = {row["pull_id"] for row in found["pull"] if row["res"] == "FOUND"}
    assert {first["pull_id"], again["pull_id"]} == pull_ids
    assert [r["status"] for r in found["deliver_end"]] == ["LATER", "SUCCESS"]
    assert {(r["ptopic"], r["src"], r["branch"]) for r in found["assign"]} == {
        (TOPIC, "STORE", "STORED"),
        (f"%RETRY%{GROUP}", "STORE", "STORED"),
    }
    assert {r["end_reason"] for r in found["assign_end"]} == {"SHUTDOWN"}
    (back,) = found["sendback"]
    assert (back["path"], back["ok"], back["rt_next"], back["lane"]) == ("BROKER", True, 1, 65538)
    assert {r["kind"] for r in found["commit"]} >= {"PULL", "SHUTDOWN"}
    assert all(r["addr"] == "10.0.0.1:10911" for r in found["commit"])
    assert found["rebalance"][0]["members"] == [client_id]
    assert {r["state"] for r in found["life"]} >= {"RUNNING", "SHUTDOWN"}
    assert found["route"]
    assert all(r["ok"] for r in found["heartbeat"])
    assert all(r["chan"] == 2 for r in found["pull"])  # 1 is the name server's
    assert master.addr == "10.0.0.1:10911"


@virtual_time
async def test_send_attempts_are_logged_with_what_the_workload_knows(tmp_path: Path) -> None:
    log = open_log(tmp_path, proc_no=1)
    async with Lab() as lab:
        lab.pair()
        producer, _ = await lab.producer()
        assert producer._sender is not None
        producer._sender._hook = LogHook(log)
        message = Message(TOPIC, b"x", properties={"LAB_ID": LAB_ID}, due_ns=5, okey="o", kseq=2)
        result = await producer.send(message)
        await producer.send(Message(TOPIC, b"foreign"))
    log.close()
    own, foreign = rows(tmp_path)["produce"]
    assert (own["lane"], own["lseq"], own["att"], own["due"]) == (65538, 10, 1, 5)
    assert (own["okey"], own["kseq"], own["res"], own["code"]) == ("o", 2, "OK", 0)
    assert own["ukey"] == result.msg_id
    assert own["offset_msg_id"] == bytes.fromhex(result.offset_msg_id)
    assert (own["broker"], own["bid"], own["queue_offset"]) == ("broker-a", 0, 0)
    assert (foreign["lane"], foreign["due"]) == (None, foreign["t0"])


@virtual_time
async def test_the_begin_row_is_stored_before_the_handler_runs(tmp_path: Path) -> None:
    """Read while the handler runs: what SIGKILL would leave."""
    log = open_log(tmp_path)
    seen: list[int] = []

    def handler(messages: Any) -> ConsumeResult:
        found = rows(tmp_path)
        seen.append(len(found["deliver"]) - len(found.get("deliver_end", [])))
        return ConsumeResult.SUCCESS

    async with Lab() as lab:
        (master,) = lab.pair()
        lab.cluster.fill(master, TOPIC, 0, 5)
        member = lab.member(handler=handler, consume_from=ConsumeFrom.FIRST_OFFSET)
        member.consumer._hook = LogHook(log)
        await member.consumer.start()
        await until(lambda: len(seen) == 5)
    assert seen == [1] * 5
    log.close()


class _FailsOnce:
    """A consume log that refuses one row and would take the next."""

    proc_no = 1

    def __init__(self) -> None:
        self.refusals = 1

    def write(self, table: str, **columns: object) -> int:
        self.refusals -= 1
        if self.refusals >= 0:
            raise ConsumeLogError("No space left on device", Path("x.fblog"))
        return 1

    def deliver_begin(self, *columns: object) -> int:
        return 1


def test_after_one_lost_row_no_handler_may_run_and_everyone_is_told_once() -> None:
    hook = LogHook(_FailsOnce())  # type: ignore[arg-type]
    told: list[Exception] = []
    hook.bind(told.append)
    hook.life("RUNNING")
    hook.life("RUNNING")
    message = MessageExt(
        "T", 0, 0, 0, 0, 0, 0, ("10.0.0.1", 1), 0, ("10.0.0.1", 1), 0, 0, b"", {}, 0, 0
    )
    with pytest.raises(ConsumeLogError):
        hook.deliver_begin("g", "c", 1, 1, 1, MessageQueue("T", "b", 0), message)
    assert len(told) == 1
