"""What slaves knew of an absent master's offsets is kept, and one command carries it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from failback.analytics.observe.carry_offer import CarryOffer
from failback.analytics.observe.looks import HeldQueue
from failback.carry.command import parser
from failback.carry.offline import table_of_file
from failback.cli.administer import offsets
from tests.support.observe.stories import KEY, SLAVE, Story

OPTIONS = ("--namesrv", "10.0.0.9:9876;10.0.0.8:9876", "--access-key-file", "key.yaml")
ADDRESS = "10.0.0.1:1"


class Offered:
    """A story, and what is written and said about each of its looks."""

    def __init__(self, folder: Path) -> None:
        self.story = Story()
        self.folder = folder
        self.offer = CarryOffer(folder, OPTIONS)
        self.lines: list[str] = []

    def wait(self, seconds: int = 1) -> None:
        for _ in range(seconds):
            self.story.wait()
            self.lines += self.offer.look(self.story.looks[-1], self.story.observation)

    def away(self, at_slave: int = 150) -> None:
        """The master goes; a second later the slave was told an offset."""
        self.story.commit(100)
        self.wait(3)
        self.story.kill()
        self.wait(2)
        self.story.commit(at_slave, at=(SLAVE,))
        self.wait(2)

    @property
    def file(self) -> Path:
        return self.folder / "carry" / f"{ADDRESS}.json"

    @property
    def kept(self) -> dict[int, int]:
        _, table = table_of_file(self.file)
        return dict(table[KEY])

    def commands(self) -> list[Any]:
        """What each printed command says to its own parser."""
        found = []
        for line in self.lines:
            for name, made in (("carry", parser), ("offsets", offsets.parser)):
                _, is_there, words = line.rpartition(f"failback {name} ")
                found += [made().parse_args(shlex.split(words))] if is_there else []
        return found


@pytest.fixture
def offered(tmp_path: Path) -> Offered:
    return Offered(tmp_path)


def test_nothing_is_written_or_said_while_the_master_is_there(offered: Offered) -> None:
    offered.story.commit(100)
    offered.wait(5)
    assert (offered.lines, list(offered.folder.iterdir())) == ([], [])


def test_the_table_follows_the_slave_and_the_command_is_said_once(offered: Offered) -> None:
    offered.away()
    assert offered.kept == {0: 150, 1: 150}
    (command,) = offered.commands()
    assert (str(command.conf), command.slave, command.file) == ("BROKER.CONF", [ADDRESS], [])
    assert (command.namesrv, str(command.access_key_file)) == ([OPTIONS[1]], "key.yaml")


def test_a_slave_that_dies_too_leaves_its_file(offered: Offered) -> None:
    offered.away()
    offered.story.kill(SLAVE)
    offered.wait(3)
    _, command = offered.commands()
    assert (command.slave, command.file) == ([], [offered.file])


def test_a_slave_that_was_started_anew_takes_nothing_back(offered: Offered) -> None:
    offered.away()
    offered.story.start(90, SLAVE)
    offered.wait(3)
    assert offered.kept == {0: 150, 1: 150}
    assert json.loads(offered.file.read_text())["accept_lower"] == {}
    offered.story.commit(160, at=(SLAVE,))
    offered.wait()
    assert offered.kept == {0: 160, 1: 160}


def test_an_offset_that_falls_is_marked_until_it_is_as_high_again(offered: Offered) -> None:
    offered.away()
    offered.story.commit(40, at=(SLAVE,))
    offered.wait(2)
    offered.story.commit(45, at=(SLAVE,))
    offered.wait()
    assert offered.kept == {0: 45, 1: 45}
    fell = {KEY: {"0": 150, "1": 150}}
    assert json.loads(offered.file.read_text())["accept_lower"] == fell
    assert sum("offsets of billing fell" in line for line in offered.lines) == 1
    assert "--accept-lower" in offered.lines[-1]
    offered.story.commit(150, at=(SLAVE,))
    offered.wait()
    assert json.loads(offered.file.read_text())["accept_lower"] == {}


def test_the_return_has_the_online_command_and_what_it_spares(offered: Offered) -> None:
    offered.story.store(1000)
    offered.away()
    offered.story.start(90)
    offered.story.commit(90, at=(SLAVE,))  # the slave has copied its master already
    offered.wait()
    command = offered.commands()[-1]
    assert (command.source, command.broker, command.yes) == (offered.folder, "broker-a", True)
    assert (command.namesrv, str(command.access_key_file)) == ([OPTIONS[1]], "key.yaml")
    (told,) = offsets._read(offered.folder)
    assert (told.broker, told.table[KEY]) == ("broker-a", {0: 150, 1: 150})
    assert "billing 120 messages" in offered.lines[-1]
    assert offered.kept == {0: 150, 1: 150}
    said = len(offered.lines)
    offered.wait(5)
    assert len(offered.lines) == said
    assert offered.kept == {0: 150, 1: 150}


def test_no_message_is_spared_beyond_the_end_of_a_queue(offered: Offered) -> None:
    offered.story.store(100)
    offered.away()
    offered.story.start(90)
    offered.wait()
    assert "billing 20 messages" in offered.lines[-1]


def test_a_master_that_knows_as_much_needs_nothing(offered: Offered) -> None:
    offered.away()
    said = len(offered.lines)
    offered.story.start(150)
    offered.wait(2)
    assert len(offered.lines) == said


def test_what_members_would_commit_is_kept_with_the_file_named(offered: Offered) -> None:
    offered.story.tell(HeldQueue(999, 0, 0, 0))  # before the outage: it may have been reset since
    offered.away()
    offered.story.tell(HeldQueue(999, 0, 0, 0))
    offered.story.told = (structs.replace(offered.story.told[0], at=2.0),)  # asked before it
    offered.wait()
    assert offered.kept == {0: 150, 1: 150}
    offered.story.tell(HeldQueue(160, 0, 0, 0))
    offered.wait()
    offered.story.tell(HeldQueue(170, 0, 0, 0))
    offered.story.told = (structs.replace(offered.story.told[0], client="b"),)
    offered.wait(2)
    assert offered.kept == {0: 170, 1: 170}
    _, command, keeper = offered.commands()
    assert (command.slave, command.file) == ([ADDRESS], [offered.file])
    assert (keeper.keep, keeper.slave) == (True, [ADDRESS])
    offered.story.tell(HeldQueue(30, 0, 0, 0))  # a reset reached it: what the slave has counts
    offered.wait(2)
    assert offered.kept == {0: 150, 1: 150}


def test_an_observer_that_begins_anew_goes_on_with_the_same_outage(offered: Offered) -> None:
    offered.away()
    offered.offer = CarryOffer(offered.folder, OPTIONS)
    offered.wait()
    first, again = offered.commands()
    assert vars(first) == vars(again)


def test_a_disk_that_refuses_is_said_once_and_written_when_there_is_room(offered: Offered) -> None:
    (offered.folder / "carry").write_text("in the way")
    offered.away()
    assert sum("is not kept; make room" in line for line in offered.lines) == 1
    (offered.folder / "carry").unlink()
    offered.wait()
    assert offered.kept == {0: 150, 1: 150}


@pytest.mark.foreign
@pytest.mark.parametrize("address", ["../../x", "a/b", "..", "a\0b", "$(x);", "n" * 5000])
def test_an_address_of_any_text_is_a_file_in_the_folder(address: str, tmp_path: Path) -> None:
    from failback.analytics.observe.kept_tables import KeptTable

    path = CarryOffer(tmp_path).file_of(KeptTable(address))
    assert path.parent == tmp_path / "carry"
    assert path.name not in (".json", "..")
    path.parent.mkdir()
    path.touch()
