"""A reset takes effect as it says or says why not; what cannot be meant is asked back."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from failback.cli.__main__ import main
from tests.support.net.two_pairs import (
    END,
    FIRST,
    GROUP,
    KEY,
    STORED_MS,
    TOPIC,
    Master,
    TwoPairs,
    lose_topic,
)

pytestmark = pytest.mark.foreign
RESET = f"admin resetOffset -g {GROUP} -t {TOPIC}"
ONE = f"{RESET} --broker broker-a --queue 0 --offset"


def member(name: str = "c1", **fields: Any) -> dict[str, Any]:
    usual = {"clientId": name, "clientAddr": "127.0.0.1:9", "language": "JAVA", "version": 413}
    return {**usual, **fields}


@pytest.fixture
def pairs() -> Iterator[TwoPairs]:
    with TwoPairs() as made:
        yield made


def run(pairs: TwoPairs, line: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = main([*line.split(), "--namesrv", pairs.namesrv.address])
    return (code, *capsys.readouterr())


# --- members --------------------------------------------------------------------------------------


def test_a_group_without_members_gets_its_offsets_stored(
    pairs: TwoPairs, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(pairs, f"{RESET} --time now", capsys)
    assert (code, err) == (0, "")
    assert out.count("stored, no member is online") == 4
    assert pairs.a.offsets[KEY] == pairs.b.offsets[KEY] == {0: END, 1: END}


@pytest.mark.parametrize("held", [{}, {0: 5}, {0: 5, 1: -1}, {0: 5, 1: 5}], ids=str)
def test_members_are_told_of_queues_that_were_never_written_too(
    held: dict[int, int], pairs: TwoPairs, capsys: pytest.CaptureFixture[str]
) -> None:
    for each in (pairs.a, pairs.b):
        each.members, each.offsets[KEY] = [member()], dict(held)
    code, out, err = run(pairs, f"{RESET} --time now", capsys)
    assert (code, err) == (0, "")
    assert out.count("told its members") == 4
    assert (pairs.a.pushed, pairs.b.pushed) == (1, 1)


def refusing(master: Master, **fields: Any) -> None:
    master.members = [member(**fields)]
    master.answers[222] = lambda r: r.response(1, "the client does not support this feature.")


@pytest.mark.parametrize(
    ("change", "told", "stored"),
    [
        (lambda a: refusing(a), "members are online (c1 JAVA) and the broker does not tell", 5),
        (
            lambda a: setattr(a, "members", [member(version=3)]),
            "members are online whose version takes no offset from a broker: c1 JAVA; nothing was",
            5,
        ),
        (
            lambda a: setattr(a, "members", [member(language="GO")]),
            "members were told whose clients may not obey: c1 GO",
            5,
        ),
    ],
)
def test_what_members_do_not_take_is_an_error(
    change: Any, told: str, stored: int, pairs: TwoPairs, capsys: pytest.CaptureFixture[str]
) -> None:
    change(pairs.a)
    code, out, err = run(pairs, f"{RESET} --time now", capsys)
    assert code == 1
    assert f"error: broker-a ({pairs.a.address}): {told}" in err
    assert pairs.a.offsets[KEY] == {0: stored, 1: stored}
    assert "broker-b" in out


def test_members_that_do_not_read_the_topic_are_not_told(
    pairs: TwoPairs, capsys: pytest.CaptureFixture[str]
) -> None:
    """They would ignore it, and the broker stores nothing where it has members to tell."""
    for each in (pairs.a, pairs.b):
        each.members, each.topics = [member()], ["other"]
    code, out, err = run(pairs, f"{RESET} --time now", capsys)
    assert (code, err) == (0, "")
    assert out.count("stored, no member reads this topic") == 4
    assert pairs.a.offsets[KEY] == {0: END, 1: END}


def test_members_that_are_at_another_broker_come_back_and_are_named(
    pairs: TwoPairs, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs.b.members = [member()]
    code, out, err = run(pairs, f"{RESET} --time now", capsys)
    assert code == 1
    assert out.count("stored, its member writes over it") == 2
    assert out.count("told its members") == 2
    assert "broker-a" in err
    assert "members are online at other brokers: c1 JAVA" in err


def test_an_offset_that_a_member_writes_over_is_an_error(
    pairs: TwoPairs, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs.a.members = [member()]
    code, out, err = run(pairs, f"{ONE} 7", capsys)
    assert code == 1
    assert "stored, its member writes over it" in out
    assert "members are online: c1 JAVA" in err


def test_what_was_done_before_a_broker_refused_is_shown(
    pairs: TwoPairs, capsys: pytest.CaptureFixture[str]
) -> None:
    store = pairs.a.answers[15]
    pairs.a.answers[15] = lambda r: (
        store(r) if (r.ext_fields or {})["queueId"] == "0" else r.response(14, "disk full")
    )
    code, out, err = run(pairs, f"{RESET} --time now --json", capsys)
    assert code == 1
    assert [(row["broker"], row["queue"]) for row in json.loads(out)] == [
        ("broker-a", 0), ("broker-b", 0), ("broker-b", 1),
    ]  # fmt: skip
    assert err == f"error: broker-a ({pairs.a.address}): refused: disk full\n"
    lose_topic(pairs.a)
    lose_topic(pairs.b)
    code, out, err = run(pairs, f"{RESET} --time now --json", capsys)
    assert (code, out) == (1, "[]\n"), "JSON for machines, also of nothing"
    assert len(err.splitlines()) == 2


def test_a_group_that_no_broker_knows_is_named_with_the_nearest(
    pairs: TwoPairs, capsys: pytest.CaptureFixture[str]
) -> None:
    line = f"admin resetOffset -g biling -t {TOPIC} --time now"
    code, _, err = run(pairs, line, capsys)
    assert code == 0
    assert err == 'note: no broker has settings of group "biling", did you mean "billing"?\n'


# --- times ----------------------------------------------------------------------------------------

TIMES = {
    "1714564800": "1714564800 in milliseconds is 1970-01-20T20:16:04Z; seconds would be"
    " 2024-05-01T12:00:00Z, in milliseconds 1714564800000",
    "1714564800000000": "microseconds would be 2024-05-01T12:00:00Z, in milliseconds 1714564800000",
    "1714564800000000000": "nanoseconds would be 2024-05-01T12:00:00Z",
    "20240501": "a date would be 2024-05-01T00:00:00",
    "20240501120000": "a date would be 2024-05-01T12:00:00",
    "0": "is before the first message that there can be",
    "5": "is before the first message that there can be",
    "-1": "-1 is before 1970",
    "-1714564800000": "is before 1970",
    "IN AN HOUR": "has not come yet",
    "4102444800000": "2100-01-01T00:00:00Z has not come yet",
    "2100-01-01": "has not come yet",
    "1989-12-31T23:59:59": "is before the first message that there can be",
    "2009-06-01": "is before the first message that there can be",
    "0001-01-01": "must be like",
    "9" * 25: "after the year 9999 has not come yet",
    "9" * 5000: "must be like",
    "1714564800.5": "as seconds it is 2024-05-01T12:00:00Z",
    "²": "must be like",
    "٣": "must be like",
    "soon": "must be like",
    "nan": "must be like",
    "2024-13-01": "must be like",
    "2010-02-01": "is long before the first message that is stored, of 2025-06-15",
}


def typed(text: str) -> str:
    """The text itself, or a number for a time that is told by words."""
    ahead_ms = {"IN AN HOUR": 3_600_000, "THIS MOMENT": 0}.get(text)
    return text if ahead_ms is None else str(time.time_ns() // 1_000_000 + ahead_ms)


@pytest.mark.parametrize("text", TIMES, ids=lambda text: text[:30])
def test_a_time_that_cannot_be_meant_is_refused_with_what_it_would_mean(
    text: str, pairs: TwoPairs, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(pairs, f"{RESET} --time {typed(text)}", capsys)
    assert (code, out) == (2, "")
    assert err.startswith("error: --time: ")
    assert TIMES[text] in err
    assert pairs.a.offsets[KEY] == pairs.b.offsets[KEY] == {0: 5, 1: 5}


@pytest.mark.parametrize(
    "text", [text for text, why in TIMES.items() if why != "must be like" and "." not in text]
)
def test_yes_takes_a_time_as_it_is(
    text: str, pairs: TwoPairs, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(pairs, f"{RESET} --time {typed(text)} --yes", capsys)
    assert code == 0
    assert out.count("stored") == 4
    assert pairs.a.offsets[KEY] == {0: 4, 1: 4}, "what was found by the time, not the end"


@pytest.mark.parametrize(
    "text", ["now", "2025-06-15", str(STORED_MS), str(STORED_MS - 86_400_000), "THIS MOMENT"]
)
def test_a_time_that_can_be_meant_is_obeyed(
    text: str, pairs: TwoPairs, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(pairs, f"{RESET} --time {typed(text)}", capsys)[0] == 0


@pytest.mark.parametrize("option", ["--since", "--until"])
@pytest.mark.parametrize(
    "text", ["1714564800", "1714564800000000", "-1", "0", "IN AN HOUR", "2009-06-01", "now", "soon"]
)
def test_a_window_of_traces_is_of_times_that_can_be_meant(
    text: str, option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["trace", "--out", str(tmp_path / "t"), option, typed(text), "-n", "127.0.0.1:1"]
    assert main(words) == 2
    shown = capsys.readouterr().err
    assert shown.startswith(f"error: {option}: ")
    assert TIMES.get(text, "must be") in shown
    if text not in ("now", "soon"):
        assert main([*words, "--yes"]) == 3, "then nobody answers"


def test_a_window_ends_behind_its_beginning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    window = ["--since", "2025-06-15", "--until", "2025-06-14"]
    assert main(["trace", "--out", str(tmp_path / "t"), *window, "-n", "127.0.0.1:1"]) == 2
    assert "--until: 2025-06-14 is before --since, 2025-06-15" in capsys.readouterr().err


# --- offsets, queues and counts -------------------------------------------------------------------

NUMBERS = {
    f"{ONE} {END + 1}": f"--offset: {END + 1} lies 1 beyond the end {END} of queue 0 of orders",
    f"{ONE} 5000": "--offset: 5000 lies 4990 beyond the end 10",
    f"{ONE} 0": "--offset: 0 lies 3 below the first offset 3",
    f"{ONE} -1": "'--offset': Input should be",
    f"{RESET} --queue 2 --offset 5": "there is no queue 2 of orders on a master; it has 0 to 1",
    f"{RESET} --queue -1 --offset 5": "'--queue': Input should be",
    f"{RESET} --queue 0 --offset 5": "masters with queue 0 of orders: broker-a, broker-b; name one",
    "admin updateTopic -b broker-a -t T -r 0": "'--read-queues' / ",
    "admin updateTopic -b broker-a -t T -w 1000000 -r 8": "'--write-queues' / ",
    "admin updateTopic -b broker-a -t T -w 8 -r 4": "no consumer reads queues 4 to 7",
    "admin updateSubGroup -b broker-a -g g --retry-queues 0": "'--retry-queues': Input should be",
    "admin updateSubGroup -b broker-a -g g --retry-max -2": "'--retry-max': Input should be",
    f"explain-offset {GROUP} {TOPIC} 9 --live": "QUEUE: there is no queue 9 of orders; it has 0 to",
    f"explain-offset {GROUP} {TOPIC} -1 --live": "-1",
}


@pytest.mark.parametrize("line", NUMBERS)
def test_a_number_that_cannot_be_meant_is_refused(
    line: str, pairs: TwoPairs, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(pairs, line, capsys)
    assert (code, out) == (2, "")
    assert NUMBERS[line] in err
    assert pairs.a.offsets[KEY] == {0: 5, 1: 5}


@pytest.mark.parametrize("offset", [FIRST, END, 7])
def test_an_offset_of_the_queue_is_stored(
    offset: int, pairs: TwoPairs, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(pairs, f"{ONE} {offset}", capsys)[0] == 0
    assert pairs.a.offsets[KEY][0] == offset


def test_yes_stores_an_offset_outside(pairs: TwoPairs, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(pairs, f"{ONE} 5000 --yes", capsys)[0] == 0
    assert pairs.a.offsets[KEY][0] == 5000


# --- consumerProgress -----------------------------------------------------------------------------


def progress(pairs: TwoPairs, capsys: pytest.CaptureFixture[str], group: str = GROUP) -> Any:
    return run(pairs, f"admin consumerProgress -g {group}", capsys)


def test_offsets_outside_of_their_queues_are_named(
    pairs: TwoPairs, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs.a.offsets[KEY] = {0: 5000, 1: 1}
    pairs.b.offsets[KEY] = {1: 7}
    code, out, _ = progress(pairs, capsys)
    lines = [line.split() for line in out.splitlines()[1:]]
    assert code == 0
    assert [line[5] for line in lines] == ["0", "7", "7", "3"], "lag is of what is stored"
    assert "5000 lies 4990 beyond the end 10" in out
    assert "1 lies 2 below the first offset 3: they have expired" in out
    assert "no offset is stored" in out


def test_a_group_of_two_clusters_has_a_row_for_each(
    pairs: TwoPairs, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs.b.offsets[KEY] = {0: 9, 1: 9}
    rows = []
    for pairs.clusters["broker-b"] in ("c", "other"):
        code, out, _ = run(pairs, "admin consumerProgress", capsys)
        assert code == 0
        rows.append([line.split() for line in out.splitlines()[1:]])
    assert rows[0] == [[GROUP, "0", "1", "4", "12", "broker-a,", "broker-b", "c"]]
    assert rows[1] == [
        [GROUP, "0", "1", "2", "10", "broker-a", "c"],
        [GROUP, "0", "1", "2", "2", "broker-b", "other"],
    ]


def test_a_group_that_broadcasts_has_no_lag(
    pairs: TwoPairs, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs.a.members, pairs.a.model = [member()], "BROADCASTING"
    _, out, _ = progress(pairs, capsys)
    rows = [line.split() for line in out.splitlines() if "broker-a" in line]
    assert [row[5] for row in rows] == ["-", "-"]
    assert "the group broadcasts" in out


@pytest.mark.parametrize(
    ("group", "change", "said"),
    [
        ("biling", lambda _: None, ', did you mean "billing"?'),
        ("nobody", lambda _: None, 'error: group "nobody" has no offsets on any broker\n'),
        ("new", lambda a: a.groups.append("new"), "brokers have settings of it, and no member"),
        ("new", lambda a: a.members.append(member()), "members are online: c1 JAVA"),
    ],
)
def test_a_group_without_offsets_is_an_error_that_says_what_is_known(
    group: str, change: Any, said: str, pairs: TwoPairs, capsys: pytest.CaptureFixture[str]
) -> None:
    change(pairs.a)
    code, out, err = progress(pairs, capsys, group)
    assert (code, out) == (1, "")
    assert said in err


def test_a_group_that_is_known_only_by_offsets_is_said_to_be(
    pairs: TwoPairs, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs.a.groups.clear()
    pairs.b.groups.clear()
    code, out, err = progress(pairs, capsys)
    assert code == 0
    assert "broker-a" in out
    assert 'group "billing" is known only by its offsets' in err
