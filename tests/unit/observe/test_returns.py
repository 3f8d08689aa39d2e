"""What a return is said to have cost: intervals that hold the truth of the story that is told."""

from __future__ import annotations

import pytest

from failback.analytics.observe.observation import dangers, hidden, in_danger, sentences
from tests.support.observe.outages import at_work, come_back, cost, serve, take_over
from tests.support.observe.stories import KEY, MASTER, SLAVE, Story


def outage(story: Story, *, reached: int, file: int) -> None:
    """The group goes on at the slave while the master is down, and its members stay."""
    serve(story, reached)
    story.start(file)
    story.wait()


def test_members_that_stay_consume_nothing_again() -> None:
    story = at_work()
    serve(story, 1500)
    story.start(900)
    story.wait()
    assert cost(story)["safe_offsets"] == {"0": 1500, "1": 1500}
    story.wait(3)
    story.commit(1500)
    story.wait(2)
    found = cost(story)
    assert (found["lo"], found["hi"], found["owner_changed"]) == (0, 0, False)
    assert found["basis"] == ["E1", "E2", "E3"]
    assert not found["exact"]
    assert found["safe_offsets"] == {"0": 1500, "1": 1500}, "as they were at the return"
    assert not list(in_danger(story.observation.returns))
    assert found["queues"][0] == {
        "qid": 0, "had": 900, "reached": 1500, "now": 1500, "lo": 0, "hi": 0,
    }  # fmt: skip


@pytest.mark.parametrize(("listed", "most"), [({"a"}, 1200), (set(), 0), ({"a", "b"}, 0)])
def test_none_is_said_of_two_members_once_the_returned_master_lists_both(
    listed: set[str], most: int
) -> None:
    story = at_work()
    serve(story, 1500)
    story.start(900)
    story.listed_by_master = {"billing": listed}
    story.wait(2)
    story.listed_by_master = None
    story.wait(2)
    story.commit(1500)
    story.wait(2)
    found = cost(story)
    assert (found["lo"], found["hi"]) == (0, most)


def test_members_that_the_returned_master_never_listed_are_not_said_to_repeat_none() -> None:
    story = at_work()
    serve(story, 1500)
    story.start(900)
    story.listed_by_master = {"billing": set()}
    story.wait(2)
    assert cost(story)["hi"] == 1200


@pytest.mark.parametrize(
    ("language", "moves", "most"),
    [("GO", False, 1200), ("GO", True, 0), ("CPP", False, 0)],
)
def test_a_successor_that_asks_no_slave_begins_where_the_returned_master_stands(
    language: str, moves: bool, most: int
) -> None:
    story = at_work()
    story.languages = {"c": language}
    story.kill()
    story.wait(2)
    story.commit(1500, at=(SLAVE,))
    story.store(1500)
    story.members["billing"] = set()
    story.wait(2)
    story.members["billing"] = {"c"}
    story.wait(2)
    if moves:
        story.store(1600)
        story.commit(1600, at=(SLAVE,))
        most = 200  # it may begin at 1500, where it joined
    story.wait(4)
    story.start(900)
    story.wait(2)
    story.commit(1600 if moves else 1500)
    story.wait(2)
    found = cost(story)
    assert (found["lo"], found["hi"]) == (0, most)
    assert found["languages"] == [language]


def test_members_that_told_no_broker_may_have_finished_more() -> None:
    story = at_work()
    story.languages = {"a": "GO", "b": "GO"}
    story.kill()
    story.wait(5)
    story.store(1800)
    come_back(story, 900)
    (danger,) = dangers(story.observation)
    assert danger.tells_nobody
    assert (danger.members, danger.must_act) == (0, True)
    story.members["billing"] = {"c"}
    story.wait(2)
    (danger,) = dangers(story.observation)
    assert (danger.members, danger.must_act) == (1, False)
    take_over(story, 1900)
    found = cost(story)
    assert (found["lo"], found["hi"]) == (200, 1800)
    assert "ROLLBACK_UNTOLD" in found["causes"]


def test_members_that_go_on_telling_the_slave_are_to_be_restarted() -> None:
    story = at_work()
    story.languages = {"a": "DOTNET"}
    serve(story, 1500)
    story.start(900)
    story.wait(2)
    story.commit(1500)
    story.wait(2)
    (said,) = sentences(story.observation.document())
    assert "restart its DOTNET members" in said


def test_without_members_told_nothing_is_sure() -> None:
    story = at_work()
    story.tells_members = False
    story.observation.finder.members.known.clear()
    serve(story, 1500)
    story.start(900)
    story.wait()
    story.commit(1500)
    story.wait(2)
    found = cost(story)
    assert (found["lo"], found["hi"]) == (0, 1200)
    assert found["basis"] == ["E1", "E2"]


def test_who_starts_after_the_return_begins_with_the_masters_table() -> None:
    story = at_work()
    serve(story, 1500)
    come_back(story, 900)
    take_over(story, 1200)
    found = cost(story)
    assert (found["lo"], found["hi"]) == (600, 1200), "it is halfway through"
    story.commit(1700, at=(MASTER,))
    story.wait(2)
    found = cost(story)
    assert (found["lo"], found["hi"], found["owner_changed"]) == (1200, 1200, True)
    assert found["causes"] == ["ROLLBACK_RESTART", "ROLLBACK_SLAVE_ONLY_PROGRESS"]


@pytest.mark.parametrize(("set_to", "again"), [(1500, 0), (1300, 400)])
def test_an_offset_that_is_set_before_a_member_starts_is_where_it_begins(
    set_to: int, again: int
) -> None:
    story = at_work()
    serve(story, 1500)
    come_back(story, 900)
    story.commit(set_to, at=(MASTER,))
    story.wait(2)
    take_over(story, 1600)
    found = cost(story)
    assert (found["lo"], found["hi"]) == (again, again)


@pytest.mark.parametrize("listed_after", [1, 3])
def test_nothing_is_sure_of_an_offset_that_rises_as_a_member_starts(listed_after: int) -> None:
    story = at_work(1000)
    serve(story, 1500)
    come_back(story, 900)
    story.tells_members = False
    story.commit(1500, at=(MASTER,))  # by an operator, or by the member that reads from 900
    story.wait(listed_after - 1)
    story.tells_members = True
    story.members["billing"] = {"c"}
    story.wait(3)
    found = cost(story)
    assert (found["lo"], found["hi"] >= 2 * 600) == (0, True)


def test_what_was_not_committed_may_come_again_as_well() -> None:
    story = at_work()
    serve(story, 1500, stored=1800)  # 300 beyond what anybody committed
    come_back(story, 900)
    take_over(story, 1900)
    found = cost(story)
    assert (found["lo"], found["hi"]) == (1200, 1800)


def test_who_starts_while_only_the_slave_is_there_goes_on_from_its_table() -> None:
    story = at_work()
    story.kill()
    story.wait(2)
    story.commit(1500, at=(SLAVE,))
    story.store(1500)
    story.members["billing"] = set()
    story.wait(2)
    story.members["billing"] = {"c"}
    story.wait(8)
    story.start(900)
    story.wait(2)
    story.commit(1500)
    story.wait(2)
    found = cost(story)
    assert (found["lo"], found["hi"]) == (0, 0)


@pytest.mark.parametrize(("held", "again"), [(None, 3000), (400, 2200), (1500, 0)])
def test_who_starts_at_a_slave_that_is_behind_begins_there(held: int | None, again: int) -> None:
    story = at_work()
    story.store(1500)
    story.commit(1500, at=(MASTER,))
    story.brokers[SLAVE].offsets = {} if held is None else {KEY: {0: held, 1: held}}
    story.wait(2)
    story.kill()
    story.members["billing"] = set()
    story.wait(3)
    story.members["billing"] = {"c"}
    story.wait(2)
    story.commit(1500, at=(SLAVE,))
    story.wait(2)
    story.start(1500)
    story.wait(3)
    found = cost(story)
    assert found["lo"] <= again <= found["hi"]
    assert found["hi"] == again
    assert ("ROLLBACK_STALE_SLAVE" in found["causes"]) == (again > 0)


@pytest.mark.parametrize("looks", [0, 2])
@pytest.mark.parametrize("moved", [1050, 1600])
def test_who_comes_before_the_returned_master_was_read_may_have_moved_its_table(
    looks: int, moved: int
) -> None:
    story = at_work()
    story.wait(60)
    serve(story, 1500)
    story.members["billing"] = set()
    story.wait(3)
    story.start(1000)  # what its file held
    story.freeze()
    story.wait(looks)
    story.members["billing"] = {"c"}
    story.wait(looks)
    story.thaw()
    story.brokers[MASTER].offsets["orders@billing"] = {0: moved, 1: moved}
    story.wait(2)
    story.commit(1700, at=(MASTER,))
    story.wait(2)
    found = cost(story)
    assert found["owner_changed"]
    assert found["lo"] <= 1000 <= found["hi"]
    assert "ROLLBACK_SLAVE_ONLY_PROGRESS" in found["causes"]


def test_what_nobody_committed_comes_again_by_how_its_holder_ended() -> None:
    story = at_work()
    story.store(1300)
    story.kill()
    come_back(story, 1000)
    take_over(story, 1300)
    found = cost(story)
    assert (found["lo"], found["hi"]) == (0, 600)
    assert found["causes"] == ["TAIL_CRASH", "TAIL_REBALANCE", "TAIL_SHUTDOWN"]


def test_a_master_that_can_not_tell_yet_when_it_began_is_read_at_once_and_is_back_once() -> None:
    story = at_work()
    serve(story, 1500)
    story.members["billing"] = set()
    story.wait(3)
    story.start(900)
    began, story.brokers[MASTER].boot_ms = story.brokers[MASTER].boot_ms, None
    story.wait(1)
    story.members["billing"] = {"c"}
    story.brokers[MASTER].boot_ms = began
    story.wait(1)
    story.commit(1500, at=(MASTER,))
    story.wait(3)
    found = cost(story)
    assert (found["lo"], found["hi"]) == (1200, 1200)
    assert [queue["had"] for queue in found["queues"]] == [900, 900]


def test_one_of_two_members_that_is_replaced_may_have_taken_any_queue() -> None:
    story = at_work()
    serve(story, 1500)
    story.start(900)
    story.wait()
    story.members["billing"] = {"a", "c"}
    story.wait(2)
    story.commit(1500)
    story.wait(2)
    found = cost(story)
    assert (found["lo"], found["hi"], found["owner_changed"]) == (0, 1200, True)


def test_a_change_after_the_master_has_caught_up_costs_nothing() -> None:
    story = at_work()
    serve(story, 1500)
    story.start(900)
    story.wait()
    story.commit(1500)
    story.wait(2)
    story.members["billing"] = {"c"}
    story.wait(5)
    assert cost(story)["hi"] == 0


def test_two_groups_are_told_apart() -> None:
    story = at_work()
    audit = "orders@audit"
    story.members["audit"] = {"x"}
    story.commit(1000, key=audit)
    story.wait(2)
    serve(story, 1500)
    story.commit(1500, key=audit, at=(SLAVE,))
    story.members["billing"] = set()
    story.wait(5)
    story.start(900)
    story.brokers[MASTER].offsets[audit] = {0: 950, 1: 950}
    story.wait(2)
    story.members["billing"] = {"c"}
    story.wait(2)
    story.commit(1600)
    story.commit(1600, key=audit)
    story.wait(2)
    assert (cost(story)["lo"], cost(story)["hi"]) == (1200, 1200)
    assert (cost(story, "audit")["lo"], cost(story, "audit")["hi"]) == (0, 0)


def test_a_pair_that_no_name_server_lists_may_be_forgotten_by_its_members() -> None:
    story = at_work()
    story.kill(SLAVE)
    story.kill(MASTER)
    story.wait(60)
    story.start(900)
    story.wait(3)
    found = cost(story)
    assert (found["lo"], found["hi"]) == (0, 200)


def test_an_offset_that_was_set_back_before_the_outage_is_where_the_group_stood() -> None:
    story = at_work()
    story.commit(500)
    story.wait(3)
    story.commit(600)
    story.wait(3)
    story.kill()
    come_back(story, 500)
    take_over(story, 700)
    found = cost(story)
    assert found["lo"] == 200, "100 of each queue for the restart"
    assert found["hi"] == 1000, "all of it was delivered before the reset"


@pytest.mark.parametrize("members", [{"a", "b"}, {"c"}])
def test_nothing_is_sure_of_a_return_that_nobody_saw(members: set[str]) -> None:
    story = at_work()
    story.wait(100)
    story.commit(1500)
    story.store(1500)
    story.wait(2)
    story.sleep(20)
    story.start(1490)  # it began with less, and grew since
    story.members["billing"] = members
    story.wait(2)
    document = story.observation.document()
    (returned,) = document["returns"]
    assert not returned["read"]
    found = cost(story)
    assert found["lo"] == 0
    assert found["hi"] >= 2 * (1500 - 1000), "its file may have been as old as that"
    assert [gap["what"] for gap in document["gaps"]] == ["the observer did not look"]


def test_what_a_slave_keeps_of_a_removed_group_is_no_progress() -> None:
    story = Story()
    story.store(1000)
    story.commit(900)
    story.commit(700, key="orders@removed", at=(SLAVE,))
    story.wait(3)
    story.kill()
    story.wait(3)
    story.start(900)
    story.wait(3)
    (back,) = story.observation.returns
    assert {each.group for each in back.groups} == {"billing"}


@pytest.mark.parametrize(
    ("spared", "cost", "told"),
    [
        (3, 0, "Group g0: none. Group g1: none. Group g2: none."),
        (4, 0, "4 groups: none."),
        (
            4,
            7,
            "Group billing: 7 re-consumed (slave-only progress). 4 other groups: none.",
        ),
    ],
)
def test_groups_that_consumed_nothing_again_are_counted_where_they_are_many(
    spared: int, cost: int, told: str
) -> None:
    cause = "ROLLBACK_SLAVE_ONLY_PROGRESS"
    rows = [
        {"group": f"g{number}", "lo": 0, "hi": 0, "causes": [], "queues": [], "languages": []}
        for number in range(spared)
    ]
    rows += (
        [
            {
                "group": "billing",
                "lo": cost,
                "hi": cost,
                "causes": [cause],
                "queues": [],
                "languages": [],
            }
        ]
        if cost
        else []
    )
    gone = {"gone_from": 1.0, "gone_until": 2.0, "back_from": 11.0, "back_until": 12.0}
    document = {"returns": [{"broker": "broker-a", **gone, "groups": rows}], "down": []}
    assert sentences(document) == [f"00:00:02 UTC: broker-a was down for 9 to 11 s. {told}"]


@pytest.mark.parametrize("is_unreachable", [True, False])
def test_a_master_that_was_slow_when_it_was_back_may_have_begun_with_less(
    is_unreachable: bool,
) -> None:
    story = at_work()
    story.kill()
    story.wait(3)
    story.freeze(is_unreachable=is_unreachable)
    story.wait(15)
    story.start(900)
    story.wait(3)
    document = story.observation.document()
    (returned,) = document["returns"]
    assert returned["read"] is is_unreachable
    assert returned["back_from"] == (21.0 if is_unreachable else 6.0)
    assert hidden(document) == (
        [] if is_unreachable else ["broker-a is back, and its table was not read in time"]
    )


def left_after_return() -> Story:
    """A master that came back behind its slave, and a group that then left."""
    story = at_work()
    serve(story, 1500)
    story.start(900)
    story.wait()
    story.wait(2)
    story.members["billing"] = set()
    story.wait(2)
    return story


def test_where_no_name_server_tells_who_is_master_a_member_may_have_asked_it() -> None:
    story = left_after_return()
    story.name_servers = 0
    story.wait(2)
    story.members["billing"] = {"c"}
    story.wait(2)
    found = cost(story)
    assert (found["lo"], found["hi"]) == (0, 1200)
    assert found["owner_changed"]


def test_a_member_that_was_told_of_late_may_have_come_before_the_master_was_listed() -> None:
    story = left_after_return()
    story.members["billing"] = {"c"}
    story.late = 3.0
    story.wait()
    story.late = 0.0
    story.commit(1500)
    story.wait(2)
    found = cost(story)
    assert (found["lo"], found["hi"]) == (0, 1200)
