"""A command about several brokers tells of each, also of one that cannot answer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from failback.cli.__main__ import main
from failback.cli.shared import asking
from failback.protocol.fastjson import dumps
from tests.support.common.crossing import every_value
from tests.support.common.polling import SCALE
from tests.support.net.two_pairs import FAULTS, GROUP, TOPIC, Master, TwoPairs

pytestmark = pytest.mark.foreign
COMMANDS = {
    "clusterList": "admin clusterList",
    "consumerProgress of all": "admin consumerProgress",
    "brokerStatus": "admin brokerStatus -b broker-b",
    "consumerProgress": f"admin consumerProgress -g {GROUP}",
    "consumerProgress of a topic": f"admin consumerProgress -g {GROUP} -t {TOPIC}",
    "resetOffset to the end": f"admin resetOffset -g {GROUP} -t {TOPIC} --time now",
    "resetOffset to a time": f"admin resetOffset -g {GROUP} -t {TOPIC} --time 2025-06-15",
    "queryMsgByKey": f"admin queryMsgByKey -t {TOPIC} -k order-1",
    "queryMsgByUniqueKey": f"admin queryMsgByUniqueKey -t {TOPIC} -i 7F00",
    "getBrokerConfig": "admin getBrokerConfig -b broker-b",
    "updateBrokerConfig": "admin updateBrokerConfig -b broker-b brokerId=0",
    "updateTopic": f"admin updateTopic -b broker-b -t {TOPIC}",
    "updateSubGroup": f"admin updateSubGroup -b broker-b -g {GROUP}",
    "explain-offset": f"explain-offset {GROUP} {TOPIC} 0 --live --broker broker-b",
    "one offset": f"admin resetOffset -g {GROUP} -t {TOPIC} --broker broker-b --queue 0 --offset 4",
}
SHOWS_THE_OTHER = (
    "clusterList",
    "consumerProgress of all",
    "consumerProgress",
    "consumerProgress of a topic",
    "resetOffset to the end",
    "resetOffset to a time",
)
IS_AN_ANSWER = {
    ("clusterList", "lost the topic"), ("clusterList", "empty answers"),
    ("queryMsgByKey", "lost the topic"), ("queryMsgByUniqueKey", "lost the topic"),
    ("queryMsgByKey", "empty answers"), ("queryMsgByUniqueKey", "empty answers"),
    ("queryMsgByKey", "another shape"), ("queryMsgByUniqueKey", "another shape"),
    ("brokerStatus", "lost the topic"),
    ("getBrokerConfig", "lost the topic"), ("getBrokerConfig", "empty answers"),
    ("getBrokerConfig", "garbage"), ("getBrokerConfig", "another shape"),
    ("updateBrokerConfig", "lost the topic"), ("updateSubGroup", "lost the topic"),
    ("updateTopic", "lost the topic"),
}  # fmt: skip
"""What says nothing wrong of the question: a table without entries, no message of a key."""
DONE_BY_ANY_SUCCESS = ("updateTopic", "updateSubGroup", "updateBrokerConfig")


class Ended(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def pairs() -> Iterator[TwoPairs]:
    with TwoPairs() as made:
        yield made


def ask(pairs: TwoPairs, line: str, capsys: pytest.CaptureFixture[str]) -> Ended:
    code = main([*line.split(), "--namesrv", pairs.namesrv.address])
    return Ended(code, *capsys.readouterr())


@pytest.mark.parametrize(("command", "fault"), every_value(COMMANDS, FAULTS, times=3))
def test_what_one_broker_did_not_say_is_said(
    command: str,
    fault: str,
    pairs: TwoPairs,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if fault == "frozen":
        monkeypatch.setattr(asking, "ANSWER_MS", 800.0 * SCALE)
    address = pairs.b.address
    FAULTS[fault](pairs.b)
    began = time.monotonic()
    found = ask(pairs, COMMANDS[command], capsys)
    assert time.monotonic() - began < 10 * SCALE, "a bounded time"
    for inside in ("internal error", "Traceback", "Error:"):
        assert inside not in found.err + found.out, found
    if command in DONE_BY_ANY_SUCCESS and fault in ("empty answers", "garbage", "another shape"):
        return
    if (command, fault) not in IS_AN_ANSWER:
        assert found.code in (1, 3), found
        assert address in found.err, found
        assert found.err.startswith("error: ")
    if command in SHOWS_THE_OTHER:
        assert "broker-a" in found.out, found


@pytest.mark.parametrize("command", SHOWS_THE_OTHER)
@pytest.mark.parametrize("option", ["", " --json"])
def test_with_both_the_commands_end_well(
    command: str, option: str, pairs: TwoPairs, capsys: pytest.CaptureFixture[str]
) -> None:
    found = ask(pairs, COMMANDS[command] + option, capsys)
    assert (found.code, found.err) == (0, ""), found
    assert "broker-a" in found.out
    assert "broker-b" in found.out


def test_reasons_are_told_apart(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(asking, "ANSWER_MS", 1500.0 * SCALE)
    line = COMMANDS["resetOffset to the end"]
    said = {}
    for fault in ("lost the topic", "another version", "frozen", "gone"):
        with TwoPairs() as made:
            FAULTS[fault](made.b)
            said[fault] = ask(made, line, capsys)
    assert (
        "has no topic orders, though the name server lists it there" in said["lost the topic"].err
    )
    assert "is it of another version?" in said["another version"].err
    assert "gave no answer within" in said["frozen"].err
    assert "cannot be reached: connection refused" in said["gone"].err
    assert {fault: each.code for fault, each in said.items()} == {
        "lost the topic": 1, "another version": 3, "frozen": 3, "gone": 3,
    }  # fmt: skip


@pytest.mark.parametrize("fault", ["frozen", "gone", "garbage"])
def test_of_a_silent_name_server_another_is_asked(
    fault: str,
    pairs: TwoPairs,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if fault == "frozen":
        monkeypatch.setattr(asking, "ANSWER_MS", 800.0 * SCALE)
    with Master("none") as silent:
        where = f"{silent.address};{pairs.namesrv.address}"
        FAULTS[fault](silent)
        for _ in range(4):  # which one is asked first is drawn
            assert main(["admin", "clusterList", "-n", where]) == 0
            assert "broker-a" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("address", "command"),
    every_value(
        ["x", "host:abc", "", ":", "127.0.0.1:99999999", "a:1;touch x", "127.0.0.1:1\nerror: no"],
        [*SHOWS_THE_OTHER, "explain-offset"],
        times=2,
    ),
)
def test_an_address_that_is_none_is_a_broker_that_is_missing(
    command: str, address: str, pairs: TwoPairs, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs.places["broker-b"] = address
    found = ask(pairs, COMMANDS[command], capsys)
    assert found.code in (1, 3)
    assert "internal error" not in found.err
    assert len(found.err.splitlines()) == 1
    if command != "explain-offset":
        assert "broker-a" in found.out
        assert "broker-b" in found.err


def test_a_broker_without_an_address_is_named(
    pairs: TwoPairs, capsys: pytest.CaptureFixture[str]
) -> None:
    table = {
        "broker-a": pairs._data("broker-a"),
        "broker-b": {"cluster": "c", "brokerName": "broker-b", "brokerAddrs": {}},
    }
    body = dumps({"brokerAddrTable": table, "clusterAddrTable": {"c": list(table)}})
    pairs.namesrv.answers[106] = lambda r: r.response(0, body=body)
    for line in ("admin clusterList", f"admin consumerProgress -g {GROUP}"):
        found = ask(pairs, line, capsys)
        assert (found.code, found.err) == (1, "error: broker-b: has no master now\n")
        assert "broker-a" in found.out


def test_explain_offset_names_the_group_that_may_be_meant(
    pairs: TwoPairs, capsys: pytest.CaptureFixture[str]
) -> None:
    line = f"explain-offset biling {TOPIC} 0 --live --broker broker-a"
    found = ask(pairs, line, capsys)
    assert found.code == 1
    assert found.err.endswith(
        'has no offset of orders, queue 0, on broker-a, did you mean "billing"?\n'
    )
