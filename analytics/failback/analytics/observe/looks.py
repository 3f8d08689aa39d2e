"""One look at a cluster, and how looks are kept: a line of JSON each. Pure.

A line has only those entries of an offset table that differ from the line before. So a look every
second costs little while offsets are at rest. A reader needs all lines from the first one on.
Times are seconds after run zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Final, NamedTuple

import msgspec

from failback.analytics.run.documents import in_words

Offsets = Mapping[str, Mapping[int, int]]
"""``topic@group`` to queue id to the next offset."""
Spans = Mapping[str, Mapping[int, tuple[int, int]]]
"""Topic to queue id to its first offset and its end."""

ANSWERED: Final = "answered"
REFUSED: Final = "refused"
"""The host is there, and no process listens."""
SILENT: Final = "silent"
"""No answer in time, none that can be read, or a connection that broke: the reason is beside it."""


class Place(NamedTuple):
    """One broker process: a member of a pair."""

    pair: str
    """``cluster/broker``."""
    broker_id: int

    @property
    def broker(self) -> str:
        return self.pair.rpartition("/")[2]

    @property
    def text(self) -> str:
        return f"{self.broker}-{self.broker_id}"


_Offset = Annotated[int, msgspec.Meta(ge=-(1 << 62), le=1 << 62)]
_Number = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
_Seconds = Annotated[float, msgspec.Meta(ge=-86_400.0, le=20 * 366 * 86_400.0)]
_Milliseconds = Annotated[int, msgspec.Meta(ge=0, lt=10**13)]


class BrokerLook(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answers of one broker. A question that was not asked or not answered leaves ``None``."""

    pair: str
    broker_id: _Number
    addr: str
    asked: _Seconds
    until: _Seconds
    state: str
    boot_ms: _Milliseconds | None = None
    offsets: dict[str, dict[_Number, _Offset]] | None = None
    spans: dict[str, dict[_Number, tuple[_Offset, _Offset]]] | None = None
    members: dict[str, dict[str, str]] | None = None
    """Group to client id to the address of its connection."""
    problem: str | None = None
    is_unreachable: bool = False
    """Whether it is silent because no connection could be made: no client reached it either."""
    languages: dict[str, str] | None = None
    """Client id to the language of its client, of members that are not Java's."""
    config: dict[str, str] | None = None
    """Settings by name: in the first look that has them, and where they changed."""

    @property
    def place(self) -> Place:
        return Place(self.pair, self.broker_id)


class HeldQueue(NamedTuple):
    """One queue in the memory of a member, its process queue.

    The offsets of its messages have a meaning where ``cached`` is above 0.
    """

    committed: _Offset
    """The offset that it would commit."""
    lowest: _Offset
    highest: _Offset
    cached: _Offset
    """How many messages it has."""


class ClientLook(msgspec.Struct, frozen=True):
    """The answer of one member of a group, ``at`` seconds after run zero or later."""

    cluster: str
    group: str
    client: str
    at: _Seconds
    queues: dict[str, dict[str, dict[_Number, HeldQueue]]]
    """By broker name, topic and queue id."""


class Look(msgspec.Struct, frozen=True, omit_defaults=True):
    """One round of questions, from ``began`` to ``ended``."""

    began: _Seconds
    ended: _Seconds
    every: Annotated[float, msgspec.Meta(gt=0, le=1e7)]
    """The period that rounds are meant to have."""
    listings: dict[str, dict[str, dict[_Number, str]] | None]
    """By name server the address by ``cluster/broker`` and broker id; ``None``: no answer."""
    brokers: tuple[BrokerLook, ...] = ()
    clients: tuple[ClientLook, ...] = ()
    """Answers of members of groups."""
    seen_until: _Seconds | None = None
    """The end of the last look before it that was left out because nothing happened."""

    def listed(self) -> dict[Place, str]:
        """Return the address of every broker that some name server lists."""
        return {
            Place(pair, number): address
            for listing in self.listings.values()
            for pair, members in (listing or {}).items()
            for number, address in members.items()
        }

    def lists_master(self, pair: str) -> bool | None:
        """Whether a name server lists the pair's master; ``None`` where none of them answered."""
        if all(each is None for each in self.listings.values()):
            return None
        return Place(pair, 0) in self.listed()

    def at(self, place: Place) -> BrokerLook | None:
        return next((each for each in self.brokers if each.place == place), None)


class _Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """A look whose offset tables are changes."""

    look: Look
    gone: dict[str, list[str]] = {}
    """By broker (``cluster/broker-id``) the keys that are no longer in its table."""
    first: bool = False
    """Whether an observer began here: tables are whole."""


class Writer:
    """Makes lines of looks that come in their order."""

    def __init__(self) -> None:
        self._known: dict[Place, Offsets] = {}
        self._is_first = True
        self._encode = msgspec.json.Encoder().encode

    def line(self, look: Look) -> bytes:
        gone: dict[str, list[str]] = {}
        brokers = []
        for broker in look.brokers:
            if broker.offsets is None:
                brokers.append(broker)
                continue
            before = self._known.get(broker.place, {})
            changed = {
                key: queues for key, queues in broker.offsets.items() if before.get(key) != queues
            }
            left = [key for key in before if key not in broker.offsets]
            if left:
                gone[_name(broker.place)] = left
            self._known[broker.place] = broker.offsets
            brokers.append(msgspec.structs.replace(broker, offsets=changed))
        line = _Line(msgspec.structs.replace(look, brokers=tuple(brokers)), gone, self._is_first)
        self._is_first = False
        return self._encode(line)


class Reader:
    """Makes looks of lines, which come in their order from the first one on."""

    def __init__(self) -> None:
        self._known: dict[Place, dict[str, dict[int, int]]] = {}
        self.was_first = False
        """Whether an observer began with the last line."""
        self._decode = msgspec.json.Decoder(_Line).decode

    def look(self, line: bytes) -> Look:
        """Return the look of a line.

        Raises:
            msgspec.DecodeError: It is none.
        """
        try:
            found = self._decode(line)
        except RecursionError:
            raise msgspec.DecodeError("it is nested too deeply") from None
        except UnicodeDecodeError:
            raise msgspec.DecodeError("it is no text") from None
        self.was_first = found.first
        if found.first:
            self._known.clear()
        brokers = []
        for broker in found.look.brokers:
            if broker.offsets is None:
                brokers.append(broker)
                continue
            table = {**self._known.get(broker.place, {}), **broker.offsets}
            for key in found.gone.get(_name(broker.place), ()):
                table.pop(key, None)
            self._known[broker.place] = table
            brokers.append(msgspec.structs.replace(broker, offsets=table))
        return msgspec.structs.replace(found.look, brokers=tuple(brokers))


Damaged = Callable[[str], None]
"""Takes a sentence about each line that cannot be read, but for those that a crash cut."""


def ignore(problem: str) -> None:
    """Report no damaged line."""


def looks_of(lines: Iterable[bytes], damaged: Damaged = ignore) -> Iterator[Look]:
    """Yield the looks of a log.

    A line that a crash cut is left out: it has no end, or the next observer began behind it. The
    changes in another line that cannot be read are missing from the looks after it.
    """
    reader = Reader()
    bad = ""
    for number, line in enumerate(lines, 1):
        try:
            look = reader.look(line)
        except msgspec.DecodeError as error:
            if bad:
                damaged(bad)
            bad = f"line {number} cannot be read, and what it says is missing: {_why(line, error)}"
            if not line.endswith(b"\n"):
                bad = ""
            continue
        if bad and not reader.was_first:
            damaged(bad)
        bad = ""
        yield look
    if bad:
        damaged(bad)


def _why(line: bytes, error: msgspec.DecodeError) -> str:
    if isinstance(error, msgspec.ValidationError):
        return in_words(error)
    return "it is no JSON" if line.strip() else "it is empty"


def _name(place: Place) -> str:
    return f"{place.pair}-{place.broker_id}"
