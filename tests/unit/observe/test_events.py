"""Events are seen, with intervals that hold them; none is invented."""

from __future__ import annotations

import pytest

from tests.support.observe.stories import MASTER, SLAVE, Story


def quiet() -> Story:
    story = Story()
    story.commit(100)
    story.wait(3)
    return story


def kinds(story: Story) -> list[str]:
    return [event["kind"] for event in story.observation.document()["events"]]


def test_nothing_happens() -> None:
    story = quiet()
    story.commit(200)
    story.wait(5)
    assert kinds(story) == []


def test_a_master_goes_the_slave_serves_the_master_is_back() -> None:
    story = quiet()
    story.kill()
    story.wait(2)
    story.commit(150, at=(SLAVE,))
    story.wait(3)
    story.start(90)
    story.wait(2)
    story.commit(90, at=(SLAVE,))
    story.wait(2)
    document = story.observation.document()
    assert kinds(story) == [
        "MasterGone", "SlaveServes", "MasterBack", "OffsetsWentBack", "SlaveOverwritten",
    ]  # fmt: skip
    gone, _, back, fell, _ = document["events"]
    assert (gone["from"], gone["until"], gone["broker"]) == (2.1, 3.1, "broker-a")
    assert (back["from"], back["until"]) == (7.0, 8.1)
    assert "billing on orders: queue 0 from 100 to 90" in fell["detail"]
    (returned,) = document["returns"]
    assert (returned["gone_from"], returned["back_until"]) == (2.1, 8.1)


def test_a_name_server_that_began_anew_and_lists_nobody_yet_is_no_event() -> None:
    story = quiet()
    story.listed.clear()
    story.wait(3)
    story.commit(150)
    story.wait(3)
    story.listed |= {MASTER, SLAVE}
    story.wait(3)
    assert kinds(story) == []


def test_a_slave_whose_last_copy_comes_as_the_master_goes_does_not_serve_yet() -> None:
    story = quiet()
    story.kill()
    story.commit(150, at=(SLAVE,))
    story.wait(5)
    assert kinds(story) == ["MasterGone"]


def test_a_master_that_is_only_silent_is_not_gone() -> None:
    story = quiet()
    story.freeze()
    story.wait(5)
    story.thaw()
    story.wait(2)
    document = story.observation.document()
    assert kinds(story) == []
    assert [gap["what"] for gap in document["gaps"]] == ["broker-a-0 did not answer"]
    assert document["returns"] == []


def test_a_machine_that_was_switched_off_was_gone_when_another_process_answers() -> None:
    story = quiet()
    story.freeze()
    story.listed.discard(MASTER)
    story.wait(30)
    story.start(90)
    story.wait(2)
    assert kinds(story) == ["MasterGone", "MasterBack", "OffsetsWentBack"]


def test_a_master_restarts_between_two_looks() -> None:
    story = quiet()
    story.start(100)
    story.wait(2)
    assert kinds(story) == ["MasterGone", "MasterBack"]


def test_a_slave_that_goes_is_no_event() -> None:
    story = quiet()
    story.kill(SLAVE)
    story.wait(5)
    story.start(100, SLAVE)
    story.wait(3)
    assert kinds(story) == []


def test_all_queues_that_fall_together_are_a_reset_and_one_alone_is_not() -> None:
    story = quiet()
    story.commit(40)
    story.wait(3)
    assert kinds(story) == ["SlaveOverwritten", "Reset"]
    story.brokers[MASTER].offsets["orders@billing"] = {0: 40, 1: 30}
    story.wait(3)
    assert kinds(story)[-1] == "OffsetsWentBack"


def test_an_offset_that_rises_without_a_member_was_set() -> None:
    story = quiet()
    story.members["billing"] = set()
    story.wait(3)
    story.commit(160, at=(MASTER,))
    story.wait(2)
    story.commit(160)  # the slave copies it
    story.wait(2)
    assert kinds(story) == ["MembersChanged", "MembersChanged", "OffsetsSet"]
    story.observation.zero = 1_795_875_000.0
    event = story.observation.document()["events"][-1]
    assert event["detail"] == (
        "billing on orders: queue 0 from 100 to 160, queue 1 from 100 to 160, set with no member"
        " present"
    )
    assert event["at"] == "2026-11-28T14:10:06.100Z"


@pytest.mark.parametrize("listed_after", [1, 4])
def test_an_offset_that_a_member_moved_before_it_was_listed_was_not_set(listed_after: int) -> None:
    story = quiet()
    story.members["billing"] = set()
    story.wait(3)
    story.tells_members = False
    story.commit(160, at=(MASTER,))
    story.wait(listed_after)
    story.tells_members = True
    story.members["billing"] = {"late"}
    story.wait(3)
    assert "OffsetsSet" not in kinds(story)


def test_a_last_commit_of_a_member_that_leaves_was_not_set() -> None:
    story = quiet()
    story.members["billing"] = set()
    story.commit(160)
    story.wait(1)
    story.commit(170)
    story.wait(3)
    assert "OffsetsSet" not in kinds(story)


def test_an_offset_that_a_client_of_node_does_not_know_is_no_reset() -> None:
    story = quiet()
    story.commit(-1)
    story.wait(3)
    story.commit(100)
    story.wait(3)
    assert kinds(story) == []


def test_nothing_of_a_canary_is_an_event() -> None:
    story = quiet()
    key = "failback-canary-x-1@failback-canary-x-1-moves"
    story.members[key.partition("@")[2]] = {"m"}
    story.commit(100, key=key)
    story.wait(3)
    story.members[key.partition("@")[2]] = set()
    story.commit(40, key=key)
    story.wait(3)
    story.commit(90, key=key)
    story.wait(3)
    assert kinds(story) == []


def test_a_reset_that_reaches_the_queues_one_after_the_other_is_one() -> None:
    story = quiet()
    story.brokers[MASTER].offsets["orders@billing"] = {0: 40, 1: 100}
    story.wait()
    story.commit(40, at=(MASTER,))
    story.wait(3)
    assert kinds(story) == ["Reset"]


def test_members_join_and_leave() -> None:
    story = quiet()
    story.members["billing"] = {"a", "c"}
    story.wait(2)
    document = story.observation.document()
    assert [(each["kind"], each["member"], each["detail"]) for each in document["events"]] == [
        ("MembersChanged", "c", "c joined billing"),
        ("MembersChanged", "b", "b left billing"),
    ]


def test_a_broker_that_began_anew_has_lost_no_member() -> None:
    story = quiet()
    story.kill(SLAVE)
    story.wait(2)
    story.kill()
    story.wait(2)
    known, story.members["billing"] = story.members["billing"], set()
    story.start(100)
    story.wait(3)
    story.members["billing"] = known
    story.wait(3)
    assert "MembersChanged" not in kinds(story)


def test_roles_that_change() -> None:
    story = quiet()
    story.brokers = {MASTER: story.brokers[SLAVE], SLAVE: story.brokers[MASTER]}
    listing = {"bench/broker-a": {0: "10.0.0.1:1", 1: "10.0.0.1:0"}}
    look = story._look()
    swapped = type(look)(look.began, look.ended, 1.0, {"ns0": listing}, ())
    story.observation.look(swapped)
    assert kinds(story) == ["RoleChanged", "RoleChanged"]


def test_the_log_of_looks_gives_the_same_observation(tmp_path: object) -> None:
    from failback.analytics.observe.looks import Writer, looks_of
    from failback.analytics.observe.observation import Observation

    story = quiet()
    story.kill()
    story.wait(2)
    story.commit(150, at=(SLAVE,))
    story.wait(2)
    story.start(90)
    story.wait(3)
    writer = Writer()
    lines = [writer.line(look) for look in story.looks]
    assert len(lines[2]) < len(lines[0]), "what is as it was is left out"
    again = Observation.of(looks_of([*lines[:5], b'{"look": {"be', *lines[5:]]))
    assert again.document() == story.observation.document()
