"""What a canary has made on brokers: on disk before it is made, until it is removed.

An observer that continues a run finds the names here and removes what is left, even after a kill.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from failback.analytics.errors import ReportInputError
from failback.analytics.live.facts import CANARY
from failback.analytics.run.documents import in_words
from failback.common.files import read_object
from failback.common.replacing import replace_file
from failback.common.text import why
from failback.protocol.errors import ConfigError
from failback.protocol.message import RETRY_PREFIX

About = tuple[set[str], set[str]]
"""Groups and topics of an observation; an empty set means all."""
FILE: Final = "canary.json"
_RUN_CHARS: Final = 60


class Names(NamedTuple):
    """The names of a canary on one pair."""

    topic: str
    stays: str
    """Group whose member stays."""
    moves: str
    """Group whose member leaves while the master is down."""

    @property
    def groups(self) -> tuple[str, str]:
        return self.stays, self.moves

    @property
    def moves_key(self) -> str:
        """Of tables of offsets."""
        return f"{self.topic}@{self.moves}"

    @property
    def topics(self) -> tuple[str, ...]:
        """The topic, and the retry topics that a broker makes for the groups."""
        return self.topic, *(RETRY_PREFIX + group for group in self.groups)


def names_of(canary: str, number: int) -> Names:
    """Return the names on the pair with this number."""
    topic = f"{canary}-{number}"
    return Names(topic, f"{topic}-stays", f"{topic}-moves")


class _Document(msgspec.Struct):
    """``canary.json``."""

    canary: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_%|-]{1,127}\Z")]
    starts: Annotated[int, msgspec.Meta(ge=0, le=1 << 31)]
    numbers: dict[str, Annotated[int, msgspec.Meta(ge=0, le=1 << 31)]]
    left: list[str]


@dataclass(slots=True)
class Ledger:
    """The canary of one run folder."""

    path: Path
    canary: str
    """What all its names begin with."""
    starts: int
    """How many observers have begun it."""
    numbers: dict[str, int]
    """Pair (``cluster/broker``) to its number in names."""
    left: set[str]
    """Pairs where a topic or group may be left."""

    @classmethod
    def read(cls, folder: Path) -> Ledger | None:
        """Return the ledger of a run folder, ``None`` for a run without a canary.

        Raises:
            ReportInputError: It can't be read.
        """
        path = folder / FILE
        try:
            found = msgspec.convert(read_object(path), _Document)
        except FileNotFoundError:
            return None
        except msgspec.ValidationError as error:
            raise ReportInputError(in_words(error), path) from error
        except (OSError, ValueError) as error:
            raise ReportInputError(why(error), path) from error
        unnamed = sorted(set(found.left) - set(found.numbers))
        if unnamed:
            raise ReportInputError(f"field left has {unnamed[0]!r}, which has no number", path)
        return cls(path, found.canary, found.starts, found.numbers, set(found.left))

    @classmethod
    def begin(cls, folder: Path, run: str) -> Ledger:
        """Return the ledger of a run folder for one more observer.

        Raises:
            ConfigError: It can't be read.
            OSError: It can't be written.
        """
        try:
            found = cls.read(folder)
        except ReportInputError as error:
            raise ConfigError("--canary", str(error)) from error
        if found is None:
            name = re.sub(r"[^A-Za-z0-9_-]", "-", run)[:_RUN_CHARS]
            found = cls(folder / FILE, f"{CANARY}{name}-{secrets.token_hex(4)}", 0, {}, set())
        found.starts += 1
        found._write()
        return found

    @property
    def all(self) -> list[Names]:
        """The names on every pair."""
        return [names_of(self.canary, number) for number in self.numbers.values()]

    def at(self, pair: str) -> Names:
        """Return the names on a pair that has been given some."""
        return names_of(self.canary, self.numbers[pair])

    def name(self, pair: str) -> Names:
        """Give a pair its names, before anything is made there.

        Raises:
            OSError: The ledger can't be written.
        """
        self.numbers.setdefault(pair, len(self.numbers) + 1)
        self._write()
        return self.at(pair)

    def make(self, pair: str) -> None:
        """Note that a topic is about to be made on a pair.

        Raises:
            OSError: The ledger can't be written: nothing may be made.
        """
        self.left.add(pair)
        self._write()

    def removed(self, pair: str) -> None:
        """Note that topic and groups of a pair are removed."""
        self.left.discard(pair)
        self._write()

    def say_what_is_left(self, note: Callable[[str], None]) -> None:
        """Note a sentence for each pair where something may be left."""
        for pair in sorted(self.left):
            broker = pair.rpartition("/")[2]
            note(
                f"topic {self.at(pair).topic} of an earlier canary may be left on {broker}:"
                " go on with --canary to remove it"
            )

    def _write(self) -> None:
        document: Mapping[str, Any] = {
            "canary": self.canary,
            "starts": self.starts,
            "numbers": self.numbers,
            "left": sorted(self.left),
        }
        replace_file(self.path, json.dumps(document, indent=1).encode() + b"\n")


def with_canary(about: tuple[Collection[str], Collection[str]], ledger: Ledger | None) -> About:
    """Return the groups and topics of an observation; a set that is not empty gets the canary's."""
    groups, topics = set(about[0]), set(about[1])
    for names in ledger.all if ledger is not None else ():
        if groups:
            groups.update(names.groups)
        if topics:
            topics.add(names.topic)
    return groups, topics
