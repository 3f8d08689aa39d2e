"""``failback explain-offset --live`` on brokers that answer what a test tells them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from failback.cli.__main__ import main
from failback.protocol.fastjson import dumps
from tests.support.net.fake_remoting import FakeBroker, FakeRemoting

FAR = (1 << 53) + 1


class Pair:
    """A master with a store on this machine, its slave, and a name server that knows both."""

    def __init__(self, store: Path) -> None:
        self.store = store
        (store / "config").mkdir(parents=True)
        self.master = FakeBroker(boot_ms=1_000)
        self.slave = FakeBroker(boot_ms=2_000, broker_id=1)
        self.master.config["storePathRootDir"] = str(store)
        self.told: dict[str, Any] = {"offset": FAR}
        for broker in (self.master, self.slave):
            broker.queues["T"] = {0: (0, FAR + 100), 1: (0, 0)}
            broker.answers[14] = lambda r: r.response(0, ext={"offset": str(self.told["offset"])})
        route = {
            "brokerDatas": [
                {
                    "cluster": "c",
                    "brokerName": "broker-a",
                    "brokerAddrs": {"0": self.master.address, "1": self.slave.address},
                }
            ],
            "queueDatas": [
                {"brokerName": "broker-a", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}
            ],
        }
        self.namesrv = FakeRemoting({105: lambda r: r.response(0, body=dumps(route))})

    def file(self, offset: int, name: str = "consumerOffset.json") -> None:
        text = f'{{"offsetTable":{{"T@g":{{0:{offset}}}}}}}'
        (self.store / "config" / name).write_text(text)

    def ask(self, *words: str) -> list[str]:
        return [
            "explain-offset",
            "g",
            "T",
            "0",
            "--live",
            "--namesrv",
            self.namesrv.address,
            *words,
        ]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path / "store")
    yield made
    for each in (made.namesrv, made.master, made.slave):
        each.close()


def found(pair: Pair, capsys: pytest.CaptureFixture[str], code: int = 0) -> dict[str, Any]:
    assert main(pair.ask("--json")) == code
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def places(document: dict[str, Any]) -> list[tuple[str, int | None, int]]:
    return [(step["place"], step["offset"], step["fell"]) for step in document["steps"]]


def test_tables_file_and_answer_stand_beside_each_other(
    pair: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    pair.master.offsets["T@g"] = {0: FAR}
    pair.slave.offsets["T@g"] = {0: FAR + 9}
    pair.file(FAR - 100)
    document = found(pair, capsys)
    assert places(document) == [
        ("master table", FAR, 9),
        ("master file", FAR - 100, 109),
        ("slave table", FAR + 9, 0),
        ("answer", FAR, 9),
    ]
    assert document["exposure"] == {"after_return": 109, "on_slave": 0}
    assert [step["incarnation"] for step in document["steps"][::2]] == [1_000, 2_000]
    assert (document["fell_at"], document["safe_offset"]) == (1, FAR + 9)
    assert document["unseen"] == ["client memory", "commits", "earlier values"]
    assert main(pair.ask()) == 0
    shown = capsys.readouterr().out
    assert "what a kill would leave" in shown
    assert f"--offset {FAR + 9}" in shown
    assert "consumers restart after the master is back: 109 messages" in shown


def test_a_backup_stands_for_a_file_that_cannot_be_read(
    pair: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    pair.master.offsets["T@g"] = {0: 5}
    (pair.store / "config" / "consumerOffset.json").write_text("torn {")
    pair.file(3, "consumerOffset.json.bak")
    assert ("master file", 3, 2) in places(found(pair, capsys))


def test_a_file_that_is_elsewhere_is_not_seen(
    pair: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    pair.master.offsets["T@g"] = {0: 5}
    pair.master.config["storePathRootDir"] = str(pair.store / "elsewhere")
    document = found(pair, capsys)
    assert "master file" not in {place for place, *_ in places(document)}
    assert "master file" in document["unseen"]


def test_a_broker_that_hides_its_table_is_asked_for_the_offset(
    pair: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    del pair.master.answers[43]
    pair.slave.offsets["T@g"] = {0: 4}
    pair.told["offset"] = 6
    document = found(pair, capsys)
    assert places(document)[:2] == [("master table", 6, 0), ("slave table", 4, 2)]
    assert "does not show its table" in document["steps"][0]["what"]


def test_a_master_that_is_away_is_named_and_its_slave_answers(
    pair: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    pair.master.close()
    pair.slave.offsets["T@g"] = {0: 4}
    pair.told["offset"] = 4
    document = found(pair, capsys, code=3)
    assert places(document) == [
        ("master table", None, 0), ("slave table", 4, 0), ("answer", 4, 0),
    ]  # fmt: skip
    assert "did not answer" in document["steps"][0]["what"]
    assert document["steps"][2]["broker_id"] == 1
    assert document["unseen"] == [
        "client memory", "master table", "master file", "commits", "earlier values",
    ]  # fmt: skip
    main(pair.ask())
    shown = capsys.readouterr().out
    assert "At risk" not in shown, "a lower bound of 0 says nothing"
    assert "Safe offset: at least 4." in shown


def test_what_a_member_of_the_group_has_in_memory_is_asked_through_the_broker(
    pair: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    pair.master.offsets["T@g"] = {0: 5}
    pair.told["offset"] = 5
    pair.master.answers[203] = lambda r: r.response(
        0, body=b'{"connectionSet":[{"clientId":"c1","clientAddr":"127.0.0.1:9"}]}'
    )
    pair.master.answers[307] = lambda r: r.response(
        0,
        body=b'{"mqTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:{"commitOffset":8}}}',
    )
    document = found(pair, capsys)
    assert ("client memory", 8, 0) in places(document)
    assert document["safe_offset"] == 8, "what the member finished is safe too"
    assert ("master table", 5, 3) in places(document)
    assert "client memory" not in document["unseen"]


def test_without_an_entry_a_new_owner_begins_by_its_own_rule(
    pair: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    for broker in (pair.master, pair.slave):
        broker.answers[14] = lambda r: r.response(22, "no entry")
    document = found(pair, capsys, code=1)
    assert places(document)[-1] == ("answer", None, 0)
    assert "by its own rule" in document["steps"][-1]["what"]
    assert (document["safe_offset"], document["command"]) == (None, None)


# --- offsets that the queue does not have ---------------------------------------------------------


@pytest.mark.foreign
@pytest.mark.parametrize(
    ("master", "slave", "safe", "named"),
    [
        (5000, None, 10, ["5000 lies 4990 beyond the end 10"]),
        (5000, 7, 7, ["5000 lies 4990 beyond the end 10"]),
        (7, 5000, 7, ["5000 lies 4990 beyond the end 10"]),
        (1, None, 4, ["1 lies 3 below the first offset 4"]),
        (1, 11, 10, ["11 lies 1 beyond the end 10", "1 lies 3 below the first offset 4"]),
        (4, 10, 10, []),
        (10, 4, 10, []),
    ],
)
def test_an_offset_outside_of_the_queue_is_named_and_not_recommended(
    pair: Pair,
    capsys: pytest.CaptureFixture[str],
    master: int,
    slave: int | None,
    safe: int,
    named: list[str],
) -> None:
    for broker in (pair.master, pair.slave):
        broker.queues["T"] = {0: (4, 10)}
    pair.master.offsets["T@g"] = {0: master}
    if slave is not None:
        pair.slave.offsets["T@g"] = {0: slave}
    pair.told["offset"] = master
    document = found(pair, capsys)
    assert document["safe_offset"] == safe
    assert document["command"].endswith(f"--offset {safe}")
    assert document["outside"] == named
    assert (document["first_offset"], document["end_offset"]) == (4, 10)
    assert all(0 <= step["fell"] <= 6 for step in document["steps"])
    assert max(document["exposure"]["on_slave"] or 0, 0) <= 6
    main(pair.ask())
    shown = capsys.readouterr().out
    for line in named:
        assert line in shown


@pytest.mark.foreign
def test_the_end_of_a_slave_is_said_to_be_one(
    pair: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    pair.master.close()
    pair.slave.queues["T"] = {0: (0, 10)}
    pair.slave.offsets["T@g"] = {0: 12}
    pair.told["offset"] = 12
    document = found(pair, capsys, code=3)
    assert document["safe_offset"] == 10
    assert document["outside"] == [
        "12 lies 2 beyond the end 10 of the log of slave 1, and the master may have more"
    ]


@pytest.mark.foreign
def test_nothing_is_recommended_where_nobody_tells_the_end(
    pair: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    for broker in (pair.master, pair.slave):
        broker.answers[202] = lambda r: r.response(3, "not supported")
    pair.master.offsets["T@g"] = {0: 5000}
    pair.told["offset"] = 5000
    document = found(pair, capsys)
    assert (document["safe_offset"], document["command"]) == (None, None)
    assert "the end of the queue is not known" in document["outside"][0]


@pytest.mark.foreign
def test_of_a_group_that_broadcasts_the_brokers_offsets_are_old(
    pair: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    pair.master.offsets["T@g"] = {0: 5}
    pair.master.answers[203] = lambda r: r.response(
        0,
        body=b'{"connectionSet":[{"clientId":"c1","clientAddr":"127.0.0.1:9"}],'
        b'"messageModel":"BROADCASTING"}',
    )
    document = found(pair, capsys)
    assert (document["safe_offset"], document["command"], document["exposure"]) == (None, None, {})
    assert "broadcasts" in document["outside"][0]


def test_one_command_gives_the_master_what_its_slave_knows_of_all_groups(
    pair: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    pair.master.offsets["T@g"] = pair.slave.offsets["T@g"] = {0: 5}
    assert found(pair, capsys)["carry"] is None
    pair.slave.offsets["T@g"] = {0: 9}
    assert main(pair.ask()) == 0
    (line,) = (each for each in capsys.readouterr().out.splitlines() if "--yes" in each)
    assert line.endswith(f"--broker broker-a --yes --namesrv {pair.namesrv.address}")
    pair.master.close()
    carry = found(pair, capsys, 3)["carry"]
    assert carry.startswith(f"failback carry --conf BROKER.CONF --slave {pair.slave.address} ")


def test_after_a_restart_nothing_is_called_safe_that_master_and_slave_may_have_lost(
    pair: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    """The queue goes on above; the master has a store from before its start."""
    pair.master.boot_ms = round(time.time() * 1000) - 49_000
    pair.master.offsets["T@g"] = pair.slave.offsets["T@g"] = {0: 5356}
    document = found(pair, capsys, code=3)
    assert (document["safe_offset"], document["bound"]) == (None, "not known")
    assert document["exposure"] == {"after_return": None, "on_slave": None}
    assert (document["command"], document["carry"], document["fell_at"]) == (None, None, None)
    assert main(pair.ask()) == 3
    shown = capsys.readouterr()
    for wrong in ("never went down", "Safe offset", "At risk"):
        assert wrong not in shown.out
    assert "older offsets can't be seen any more" in shown.err
    assert "failback explain-offset g T 0 --run FOLDER" in shown.err
    pair.slave.offsets["T@g"] = {0: 5571}
    document = found(pair, capsys)
    assert (document["safe_offset"], document["bound"]) == (5571, "at least")
    assert main(pair.ask()) == 0
    assert "Safe offset: at least 5571." in capsys.readouterr().out
