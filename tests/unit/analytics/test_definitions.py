"""What counts as the same message, how far apart, from where, and when."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from failback.analytics.errors import ReportInputError
from failback.analytics.report import make_report
from failback.analytics.report.compare import compare_reports
from failback.analytics.report.make_report import read_report, report_many
from failback.analytics.run.definitions import (
    BUSINESS_KEY,
    DEFAULT,
    MESSAGE_ID,
    Definitions,
    Wanted,
    duration_ns,
)
from tests.support.analytics import business_keys
from tests.support.analytics.bad_input import clean
from tests.support.analytics.cases import CASES
from tests.support.analytics.histories import random_history
from tests.support.analytics.run_analysis import analysed
from tests.support.analytics.run_builder import MS, RunBuilder


@pytest.fixture(autouse=True)
def _without_html(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page has its own tests; drawing it for every report here would only take time."""
    monkeypatch.setattr(make_report, "_html_can_be_made", lambda: False)


def made(b: RunBuilder, folder: Path, **wanted: Any) -> dict[str, Any]:
    run = folder / "run"
    if not run.exists():
        b.write(run)
    (paths,) = report_many([run], "local", folder / "out", wanted=Wanted(**wanted))
    return read_report(paths.json)


def counts(document: dict[str, Any]) -> tuple[int, int, int, int]:
    totals = document["totals"]
    return totals["delivered"], totals["distinct"], totals["dup"], totals["lost"]


def resent() -> RunBuilder:
    """Message 1 was sent by the application once more, under another UNIQ_KEY, the same KEYS."""
    b = clean()
    b.produce(1, 5, 6, ukey="U1-again", att=2)
    for row in b.rows["deliver"]:
        row["keys"] = f"order-{row['lseq']}"
    b.deliver(3, 20, 21, lid=1, ukey="U1-again", keys="order-1")
    b.scan(3, lid=1)
    return b


def test_each_key_has_its_own_idea_of_the_same_message(tmp_path: Path) -> None:
    by_lid = made(resent(), tmp_path)
    assert counts(by_lid) == (4, 3, 1, 0)
    assert by_lid["groups"][0]["causes"] == {"APP_RESEND": 1}
    by_id = made(resent(), tmp_path, key="messageId")
    assert counts(by_id) == (4, 4, 0, 0)
    by_key = made(resent(), tmp_path, key="businessKey")
    assert counts(by_key) == (4, 3, 1, 0)
    assert by_key["groups"][0]["causes"] == {"APP_RESEND": 1}
    for document, key in ((by_lid, "lid"), (by_id, "messageId"), (by_key, "businessKey")):
        assert document["definitions"]["key"] == key
        assert document["loss"]["fates"]["OK"] == 3  # of messages that were sent, by any key
        assert document["quality"]["foreign_rows"] == 0


def test_two_messages_with_one_business_key_are_one(tmp_path: Path) -> None:
    b = clean()
    for row in b.rows["deliver"]:
        row["keys"] = "order-7"
    assert counts(made(b, tmp_path)) == (3, 3, 0, 0)
    assert counts(made(b, tmp_path, key="businessKey")) == (3, 1, 2, 0)


def test_a_message_without_the_key_is_known_by_the_other(tmp_path: Path) -> None:
    b = clean()
    b.deliver(3, 20, 21, lid=1, keys=None)
    b.deliver(4, 22, 23, lid=9, ukey=None, keys="k")
    b.deliver(5, 24, 25, lid=10, ukey=None, keys="k")
    b.deliver(6, 26, 27, lid=11, ukey=None)
    assert counts(made(b, tmp_path, key="messageId"))[:3] == (7, 5, 2)
    assert counts(made(b, tmp_path, key="businessKey"))[:3] == (7, 5, 2)


def test_hashes_of_text_keys_are_no_large_offsets(tmp_path: Path) -> None:
    for key in ("messageId", "businessKey"):
        assert made(clean(), tmp_path, key=key)["quality"]["notes"] == []


def test_send_attempts_are_found_by_message_id(tmp_path: Path) -> None:
    b = clean()
    b.produce(1, 3, 4, "TIMEOUT")
    b.deliver(3, 20, 21, lid=1)
    document = made(b, tmp_path, key="messageId")
    assert document["groups"][0]["causes"] == {"SEND_TIMEOUT_DUP": 1}


def test_retries_are_found_by_message_id(tmp_path: Path) -> None:
    b = clean()
    b.deliver(3, 20, 21, lid=8, status="LATER")
    b.sendback(8, 22, ukey="U8")
    b.sendback(8, 23, ukey="U8", path="CLIENT")
    for at, qoff in ((30, 0), (40, 1)):
        b.deliver(qoff, at, at + 1, lid=8, rt=1, topic="%RETRY%g")
    document = made(b, tmp_path, key="messageId")
    assert (document["totals"]["retry"], document["totals"]["dup"]) == (1, 1)
    assert document["groups"][0]["causes"] == {"SENDBACK_DUP": 1}


@pytest.mark.few(4)
@pytest.mark.parametrize("name", business_keys.CASES)
def test_by_business_key_each_repeat_has_its_cause(name: str, tmp_path: Path) -> None:
    case = business_keys.CASES[name]()
    document = made(case.builder, tmp_path, key="businessKey")
    (group,) = document["groups"]
    assert (group["dup"], group["retry"]) == (case.dup, case.retry)
    assert (group["causes"], group["unattributed"]) == (case.causes, case.unattributed)


def test_what_other_groups_got_by_the_same_key_is_no_evidence(tmp_path: Path) -> None:
    """All cases as groups of one run: every group has an ``order-1`` of its own topic."""
    cases = [build() for build in business_keys.CASES.values()]
    run = business_keys.together(cases).write(tmp_path / "run", manifest=False)
    business_keys.assert_caused(analysed(run, definitions=Definitions(BUSINESS_KEY)), cases)


def test_the_retry_of_what_was_sent_anew_is_its_echo(tmp_path: Path) -> None:
    case = business_keys.sent_anew_and_then_retried()
    run = case.builder.write(tmp_path / "run", manifest=False)
    repeats = analysed(run, definitions=Definitions(BUSINESS_KEY)).rows
    assert sum(repeats.column("inherited").to_pylist()) == case.inherited


def one_id_each(builder: RunBuilder) -> RunBuilder:
    """The same run with UNIQ_KEYs, KEYS and LAB_IDs that are one to one."""
    for table in ("deliver", "produce", "sendback"):
        for row in builder.rows[table]:
            row["ukey"] = f"U{row['lane']}-{row['lseq']}"
    for row in builder.rows["deliver"]:
        row["keys"] = f"K{row['lane']}-{row['lseq']}"
    return builder


@pytest.mark.few(4)
@pytest.mark.parametrize("name", CASES)
def test_where_ids_are_one_to_one_the_key_makes_no_difference(name: str, tmp_path: Path) -> None:
    assert_same(one_id_each(CASES[name]()[0]), tmp_path)


@pytest.mark.full
def test_nor_does_it_in_random_histories(tmp_path: Path) -> None:
    for seed in range(8):
        assert_same(one_id_each(random_history(Random(seed))), tmp_path / str(seed))


def assert_same(builder: RunBuilder, folder: Path) -> None:
    run = builder.write(folder, manifest=False)
    by_lid = analysed(run)
    wanted = ("did", "nth", "nth_of_copy", "cls", "cause", "after_success", "inherited")
    for key in (MESSAGE_ID, BUSINESS_KEY):
        other = analysed(run, definitions=Definitions(key))
        one, two = (
            found.rows.select(list(wanted)).sort_by("did").to_pylist() for found in (by_lid, other)
        )
        assert one == two, key
        assert by_lid.order.equals(other.order)


@pytest.mark.full
def test_deliveries_too_far_apart_are_no_duplicates(tmp_path: Path) -> None:
    b = RunBuilder("apart")
    b.assign(0, 0, end=(40, "SHUTDOWN"))
    b.run_of(range(2), 10)
    b.assign(90, 0, proc=2, end=(300, "SHUTDOWN"))
    b.deliver(0, 100, 101, proc=2)
    b.deliver(1, 200, 201, proc=2)
    b.assign(390, 0, proc=3)
    b.deliver(0, 400, 401, proc=3)
    assert made(b, tmp_path)["totals"]["dup"] == 3
    document = made(b, tmp_path, window="150ms")
    assert (document["totals"]["dup"], document["totals"]["primary"]) == (1, 4)
    assert document["groups"][0]["causes"] == {"TAIL_SHUTDOWN": 1}
    assert [(w["lo"], w["hi"]) for w in document["queues"][0]["windows"]] == [(0, 1)]
    assert made(b, tmp_path, window="90ms")["totals"]["dup"] == 1
    assert made(b, tmp_path, window="89ms")["totals"]["dup"] == 0
    assert made(b, tmp_path, window="9" * 32 + "h")["totals"]["dup"] == 3


def test_retry_topics_may_be_left_out(tmp_path: Path) -> None:
    b = clean()
    b.deliver(3, 20, 21, lid=8, status="LATER")
    b.produce(8, 3, 4)
    b.scan(3, lid=8)
    b.assign(25, 0, ptopic="%RETRY%g")
    b.sendback(8, 22)
    for at, qoff in ((30, 0), (40, 1)):
        b.deliver(qoff, at, at + 1, lid=8, rt=1, topic="%RETRY%g")
    whole = made(b, tmp_path)
    assert counts(whole) == (6, 4, 1, 0)
    document = made(b, tmp_path, ignore_retry_topics=True)
    assert counts(document) == (4, 4, 0, 0), "the retried message is not lost for that"
    assert document["totals"]["retry"] == 0
    assert [queue["topic"] for queue in document["queues"]] == ["T"]
    assert document["loss"] == whole["loss"]


def test_figures_are_of_what_begins_between_two_instants(tmp_path: Path) -> None:
    b = RunBuilder("between")
    b.assign(0, 0, end=(90, "SHUTDOWN"))
    b.run_of(range(5), 10)
    b.assign(100, 0, proc=2)
    b.run_of(range(5), 110, proc=2)
    zero = "2023-11-14T22:13:20"
    for wanted, found in (
        ({}, (10, 5)),
        ({"since": "0.1"}, (5, 5)),
        ({"since": "0.1", "until": "0.13"}, (2, 2)),
        ({"since": f"{zero}.100", "until": f"{zero}.130"}, (2, 2)),
        ({"until": "0.1"}, (5, 0)),
    ):
        totals = made(b, tmp_path, **wanted)["totals"]
        assert (totals["delivered"], totals["dup"]) == found, wanted


def test_what_differs_is_named_and_never_compared_in_one_arm(tmp_path: Path) -> None:
    plain = made(clean(), tmp_path)
    (paths,) = report_many(
        [tmp_path / "run"], "local", tmp_path / "other",
        wanted=Wanted("messageId", "15m", ignore_retry_topics=True, since="0.001", until="9"),
    )  # fmt: skip
    other = read_report(paths.json)
    assert plain["definitions"] == DEFAULT.row
    assert other["definitions"] == {
        "key": "messageId", "window_ns": 900 * 10**9, "ignore_retry_topics": True,
        "since_ns": MS, "until_ns": 9 * 10**9,
    }  # fmt: skip
    text = paths.summary.read_text()
    assert "by messageId; deliveries more than 900 s apart" in text
    assert "Counted otherwise" not in (tmp_path / "out" / "summary.md").read_text()
    compared = compare_reports([plain], [other])
    assert compared is not None
    assert [arm["n"] for arm in compared["arms"]] == [1, 1]
    assert "counted as usual" in compared["baseline"]


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"key": "name"}, "key must be one of lid, messageId, businessKey"),
        ({"window": "soon"}, "window: 'soon' is no time"),
        ({"since": "noon"}, "since: neither seconds nor an ISO time"),
        ({"until": "nan"}, "until: neither"),
        ({"since": "1e30"}, "since: further away than 292 years"),
        ({"until": "0001-01-01"}, "until: further away than 292 years"),
        ({"since": "-5"}, "since: -5 s is before the run began"),
        ({"until": "1714564800"}, "as seconds since 1970 it is 2024-05-01T12:00:00Z: write that"),
        ({"until": "1714564800000"}, "as milliseconds since 1970 it is 2024-05-01T12:00:00Z"),
        ({"until": "1714564800000000"}, "until: further away than 292 years"),
        ({"until": "999999999"}, "until: 999999999 s after the run began is longer than a run"),
        ({"since": "5", "until": "5"}, "until: 5 is not after since, 5"),
    ],
)
def test_what_cannot_be_read_is_named(wanted: dict[str, str], said: str) -> None:
    with pytest.raises(ReportInputError, match=said):
        Wanted(**wanted).of_run(0)  # type: ignore[arg-type]


@pytest.mark.foreign
@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"until": "2200-01-01"}, "until: 2200-01-01 has not come yet; the run began 2025-06-15"),
        ({"since": "1999-01-01"}, "since: 1999-01-01 is more than a day before the run began"),
        ({"until": "1750000060"}, "as seconds since 1970 it is 2025-06-15T15:07:40Z: write that"),
    ],
)
def test_a_time_that_cannot_be_of_the_run_is_refused(wanted: dict[str, str], said: str) -> None:
    zero, now = 1_750_000_000 * 10**9, 1_750_000_100 * 10**9
    with pytest.raises(ReportInputError, match=said):
        Wanted(**wanted).of_run(zero, now)  # type: ignore[arg-type]
    found = Wanted(since="2025-06-15T15:06:41", until="9").of_run(zero, now)
    assert (found.since_ns, found.until_ns) == (10**9, 9 * 10**9)


def test_durations() -> None:
    found = [duration_ns(text) for text in ("250ms", "90s", "15m", "2h")]
    assert found == [250 * MS, 90 * 10**9, 900 * 10**9, 7200 * 10**9]
