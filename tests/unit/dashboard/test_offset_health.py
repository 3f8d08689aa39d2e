"""Which offset is safe, what is at risk, and how long the better table will last."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from failback.analytics.dashboard.serve import make_app
from failback.analytics.dashboard.settings import DashboardSettings
from failback.analytics.dashboard.sources.brokers import BrokerSeen
from failback.analytics.dashboard.sources.clusters import PairRef
from failback.analytics.dashboard.sources.stakes import Stakes
from failback.analytics.dashboard.views.fleet import cluster_document, pairs_of
from failback.analytics.dashboard.views.offset_health import (
    lineage_document,
    offset_rows,
    rows_about,
    warnings,
)
from failback.analytics.live.facts import GroupTopic, OffsetFile
from failback.analytics.live.queues import overwrite_countdown
from tests.support.dashboard.asgi import ask
from tests.support.dashboard.pairs import CLUSTER, KEY, MASTER, NOW, SLAVE, seen, world


def test_equal_tables_need_nobody() -> None:
    (row,) = offset_rows([CLUSTER], world(seen(MASTER, 300, file=300), seen(SLAVE, 300)))
    assert (row["state"], row["at_risk"], row["ahead"], row["command"]) == ("equal", 0, 0, None)
    assert (row["lag"], row["safe_offset"]) == (100, 300)


def test_equal_tables_of_a_master_that_started_a_moment_ago_are_not_called_equal(
    tmp_path: Path,
) -> None:
    watch = Stakes(tmp_path)
    for up, state, pair_state in ((1000, "equal", "ok"), (30, "not known", "restarted")):
        found = world(seen(MASTER, 300, file=300, up=up), seen(SLAVE, 300))
        (pair,) = pairs_of(CLUSTER, found)
        before = watch.look((CLUSTER.key, "demo-0"), replace(pair.tables, at=NOW))
        found = {at: replace(each, before=before) for at, each in found.items()}
        (row,) = offset_rows([CLUSTER], found)
        assert (row["state"], row["at_risk"] in (None, 0)) == (state, True)
        assert cluster_document(CLUSTER, found, {}, NOW)["pairs"][0]["state"] == pair_state


def test_a_file_that_is_behind_is_what_a_kill_would_repeat() -> None:
    (row,) = offset_rows([CLUSTER], world(seen(MASTER, 300, file=250), seen(SLAVE, 280)))
    assert (row["state"], row["at_risk"]) == ("file behind memory", 50)


def test_a_slave_that_is_ahead_names_the_safe_offset_and_the_command() -> None:
    found = world(seen(MASTER, 210, file=210, up=10), seen(SLAVE, 250))
    (row,) = offset_rows([CLUSTER], found)
    assert (row["state"], row["ahead"], row["safe_offset"]) == ("master behind slave", 40, 250)
    words = shlex.split(row["command"])
    assert words[:3] == ["failback", "admin", "resetOffset"]
    assert dict(zip(words[3::2], words[4::2], strict=True)) == {
        "--group": "billing", "--topic": "orders", "--broker": "demo-0", "--queue": "0",
        "--offset": "250", "--namesrv": "127.0.0.1:9876",
    }  # fmt: skip
    (warning,) = warnings([CLUSTER], found, NOW)
    assert (warning["messages"], warning["seconds_left"]) == (40, 30.0)
    assert shlex.split(warning["command"]) == [
        "failback", "offsets", "restore", "--broker", "demo-0", "--yes", "-n", "127.0.0.1:9876",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("up", "scale", "left"),
    [(0.0, "1", 40.0), (39.0, "1", 1.0), (41.0, "1", None), (3.0, "0.1", 1.0), (5.0, "0.1", None)],
)
def test_the_countdown_ends_when_the_copy_is_certain(
    up: float, scale: str, left: float | None
) -> None:
    master = seen(MASTER, 210, up=up, failbackTimeScale=scale)
    (pair,) = pairs_of(CLUSTER, world(master, seen(SLAVE, 250)))
    assert overwrite_countdown(replace(pair.facts, at=NOW)) == left


@pytest.mark.parametrize(("up", "left"), [(0.0, 93.0), (41.0, 52.0), (94.0, None)])
def test_a_slave_of_5_copies_once_a_minute(up: float, left: float | None) -> None:
    master = seen(MASTER, 210, up=up, enableSlaveActingMaster="false")
    (pair,) = pairs_of(CLUSTER, world(master, seen(SLAVE, 250)))
    assert overwrite_countdown(replace(pair.facts, at=NOW)) == left


def test_a_master_that_is_away_is_warned_about_without_a_countdown() -> None:
    found = world(seen(MASTER, 210, file=200, problem="refused"), seen(SLAVE, 250))
    (row,) = offset_rows([CLUSTER], found)
    assert (row["state"], row["at_risk"]) == ("master away", 50)
    (warning,) = warnings([CLUSTER], found, NOW)
    assert warning["seconds_left"] is None
    assert warning["command"] == f"failback carry --conf BROKER.CONF --slave {SLAVE.address}"
    document = cluster_document(CLUSTER, found, {}, NOW)
    assert (document["state"], document["pairs"][0]["exposure"]) == ("down", None)


def test_a_master_that_was_never_seen_alive_is_the_one_that_is_silent() -> None:
    """The dashboard began to look during the outage: what the file says is all that is known."""
    file = OffsetFile("file", {KEY: {0: 200}}, 9.0)
    member = replace(MASTER, broker_id=None)
    cluster = replace(CLUSTER, pairs=(PairRef("demo-0", (member, SLAVE)),))
    silent = BrokerSeen(member.address, answered=False, member=member, at=NOW, file=file)
    (row,) = offset_rows([cluster], world(silent, seen(SLAVE, 250)))
    assert (row["master_memory"], row["master_file"], row["at_risk"]) == (None, 200, 50)
    assert (row["ahead"], row["state"]) == (50, "master away")
    (warning,) = warnings([cluster], world(silent, seen(SLAVE, 250)), NOW)
    assert warning["messages"] == 50


def test_where_nobody_knows_what_the_master_has_nothing_is_said_to_be_at_stake() -> None:
    member = replace(MASTER, broker_id=None)
    silent = BrokerSeen(member.address, answered=False, member=member, at=NOW)
    for found in (world(silent, seen(SLAVE, 250)), {SLAVE.address: seen(SLAVE, 250)}):
        (row,) = offset_rows([CLUSTER], found)
        assert (row["ahead"], row["at_risk"], row["command"]) == (0, None, None)
        assert warnings([CLUSTER], found, NOW) == []


def test_lineage_shows_where_the_value_went_down() -> None:
    (pair,) = pairs_of(CLUSTER, world(seen(MASTER, 300, file=250), seen(SLAVE, 280)))
    found = lineage_document(pair, KEY, 0, {("demo-0", "orders", 0): (310, "c1")}, {}, NOW)
    steps = [(step["offset"], step["fell"]) for step in found["steps"]]
    assert steps == [(310, 0), (300, 10), (250, 60), (280, 30)]
    assert found["safe_offset"] == 310, "what the client finished is safe too"
    assert found["at_risk"] == 60, "and is re-consumed if the file answers"
    assert "--offset 310" in found["command"]
    unknown = lineage_document(pair, KEY, 0, {}, {}, NOW)
    assert unknown["unseen"] == ["client memory"]


def test_exposure_is_what_file_and_slave_lack_of_what_is_done() -> None:
    def row(file: int | None, slave: int, rate: float) -> Any:
        found = world(seen(MASTER, 300, file=file), seen(SLAVE, slave))
        rates = {("demo.demo", "demo-0"): {KEY: rate}}
        return cluster_document(CLUSTER, found, rates, NOW)["pairs"][0]["groups"][0]

    still = row(250, 220, 0.0)
    assert (still["after_return"], still["on_slave"], still["most"]) == (50, 80, 80)
    assert still["measured"]
    moving = row(250, 220, 100.0)
    under_way = moving["after_return"] - still["after_return"]
    assert under_way > 0, "what is consumed and not committed yet"
    assert moving["on_slave"] - still["on_slave"] == under_way
    unread = row(None, 300, 100.0)
    assert unread["after_return"] == 200 + under_way, "two seconds of the file's age"
    assert not unread["measured"]


def test_groups_of_an_unknown_rate_have_no_exposure_and_hide_no_other() -> None:
    slave = seen(SLAVE, 300)
    master = seen(MASTER, 300, file=300)
    others = {GroupTopic("audit", "orders"): {0: 1}, GroupTopic("b", "orders"): {0: 2}}
    master = replace(master, offsets={**master.offsets, **others})
    (pair,) = cluster_document(CLUSTER, world(master, slave), {}, NOW)["pairs"]
    assert [row["most"] for row in pair["groups"]] == [None] * 3
    assert pair["exposure"] is None
    rates = {("demo.demo", "demo-0"): {KEY: 100.0}}
    (pair,) = cluster_document(CLUSTER, world(master, slave), rates, NOW)["pairs"]
    assert pair["exposure"] > 0


def test_a_group_that_consumes_nothing_has_nothing_at_stake_however_much_waits() -> None:
    found = world(seen(MASTER, 7, file=7), seen(SLAVE, 7))
    rates = {("demo.demo", "demo-0"): {KEY: 0.0}}
    (row,) = cluster_document(CLUSTER, found, rates, NOW)["pairs"][0]["groups"]
    assert (row["after_return"], row["on_slave"], row["most"]) == (0, 0, 0)


def test_rows_may_be_narrowed_down() -> None:
    found = world(seen(MASTER, 300), seen(SLAVE, 300))
    rows = offset_rows([CLUSTER], found)
    assert len(rows_about(rows, "billing", "orders")) == 1
    assert rows_about(rows, "other", "") == rows_about(rows, "", "other") == []


def test_what_was_overwritten_is_kept_by_the_next_dashboard_until_it_is_dismissed_or_passed(
    tmp_path: Path,
) -> None:
    place = (CLUSTER.key, "demo-0")

    def looked(stakes: Stakes, memory: int, slave: int, up: float) -> dict[str, BrokerSeen]:
        found = world(seen(MASTER, memory, up=up), seen(SLAVE, slave))
        (pair,) = pairs_of(CLUSTER, found)
        before = stakes.look(place, replace(pair.tables, at=NOW))
        return {where: replace(each, before=before) for where, each in found.items()}

    stakes = Stakes(tmp_path)
    for looks in ((300, 290, 1000), (210, 300, 5), (210, 210, 30)):
        found = looked(stakes, *looks)
    (warning,) = warnings([CLUSTER], found, NOW, stakes.found)
    assert (warning["messages"], warning["overwritten_at_ns"]) == (90, round(NOW * 1e9))
    assert warning["lines"] == ["ACT   billing  no member; 90 will be re-consumed"]
    (file,) = tmp_path.iterdir()
    assert warning["command"] == (
        f"failback offsets restore {file} --broker demo-0 --yes -n 127.0.0.1:9876"
    )
    (row,) = offset_rows([CLUSTER], found)
    assert (row["state"], row["safe_offset"], row["bound"]) == ("overwritten", 300, "at least")
    document = cluster_document(CLUSTER, found, {}, NOW, stakes.found)
    assert document["state"] == "at stake"

    stakes = Stakes(tmp_path)  # the dashboard was started again
    found = looked(stakes, 210, 210, 60)
    (again,) = warnings([CLUSTER], found, NOW, stakes.found)
    assert again == warning
    stakes.dismiss(place)
    found = looked(stakes, 210, 210, 61)
    assert warnings([CLUSTER], found, NOW, stakes.found) == []
    assert Stakes(tmp_path)._read(place).is_dismissed
    looked(stakes, 300, 300, 62)
    assert list(tmp_path.iterdir()) == []


def test_dismiss_takes_the_banner_away_for_all_and_needs_the_pages_own_token(
    tmp_path: Path,
) -> None:
    app, _ = make_app(DashboardSettings(tmp_path), [], lambda _: None)
    poller = app.state.shared.poller

    def look(memory: int, slave: int, up: float) -> str:
        found = world(seen(MASTER, memory, up=up), seen(SLAVE, slave))
        poller._keep([CLUSTER], found)
        poller.state = replace(
            poller.state, at=NOW, clusters=(CLUSTER,), seen=found, made={},
            stakes=dict(poller.stakes.found),
        )  # fmt: skip
        poller.history.note(NOW, poller.state.cluster_documents())
        return ask(app, "/", accept="text/html")[1]

    look(300, 290, 1000)
    look(210, 300, 5)
    page = look(210, 210, 30)
    (action,) = re.findall(r'action="([^"]*dismiss)"', page)
    (token,) = set(re.findall(r'name="csrf" (?:content|value)="([^"]+)"', page))
    assert "90 will be re-consumed" in page
    for form, status in (({}, 403), ({"csrf": "x"}, 403), ({"csrf": token}, 303)):
        assert "90 will be re-consumed" in look(210, 210, 31)
        assert ask(app, action, form=form)[0] == status
    page = look(210, 210, 32)
    assert "will be re-consumed" not in page
    assert 'dismiss"' not in page
