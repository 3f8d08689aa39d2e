"""Which consumer offsets a returning master takes from its slaves, and which it leaves. Pure.

An offset that is too small repeats messages, one that is too large skips them. So an offset is
raised only as far as the master's own disk has the messages before it, and lowered only for groups
that are named.

All tables are ``topic@group`` to queue id to the next queue offset.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from failback.protocol.route import split_offset_key

Table = Mapping[str, Mapping[int, int]]
LastHeld = Callable[[str, int, int], int]
"""Topic, queue id and a wanted offset to the largest offset up to it whose message before it is on
this disk, or was there and expired; -1 without such a queue."""


class Row(NamedTuple):
    """What becomes of one offset."""

    key: str
    """``topic@group``."""
    queue: int
    own: int
    """As the master has it; -1 for none."""
    theirs: int
    """The largest of all sources."""
    wanted: int
    """As it stands after the merge."""
    source: str
    """Where ``theirs`` is from: an address or a file."""

    @property
    def messages(self) -> int:
        """How far the offset moves; one that was missing moves from 0."""
        return self.wanted - max(self.own, 0)

    def __str__(self) -> str:
        return f"{self.key} queue {self.queue}: {self.own} -> {self.wanted} (from {self.source})"


@dataclass(frozen=True, slots=True)
class Merged:
    """What a merge decides. ``raised`` changes the table, all others say why it stays."""

    raised: tuple[Row, ...] = ()
    """Offsets to write, with those that ``accept_lower`` lowers."""
    lowered: tuple[Row, ...] = ()
    """The master itself lowered them before it stopped, and the slaves have not heard of it."""
    beyond: tuple[Row, ...] = ()
    """Messages before ``theirs`` are not on this disk."""
    lower: tuple[Row, ...] = ()
    """The slaves say less than the master has."""
    odd: tuple[str, ...] = ()
    """Entries that no client commits: what is wrong with each."""

    def applied(self, own: Table) -> dict[str, dict[int, int]]:
        """Return the table after the merge; ``own`` stays as it is."""
        table = {key: dict(queues) for key, queues in own.items()}
        for row in self.raised:
            table.setdefault(row.key, {})[row.queue] = row.wanted
        return table


def merge(
    own: Table,
    previous: Table | None,
    theirs: Sequence[tuple[str, Table]],
    last_held: LastHeld,
    *,
    accept_lower: Collection[str] = (),
) -> Merged:
    """Decide about every offset that a source says.

    Args:
        own: What the master starts with.
        previous: What the master had one persist earlier; ``None`` if that is not known.
        theirs: The sources, each with its table.
        accept_lower: Groups that get what the sources say, also where that is less.
    """
    found: dict[str, list[Row]] = {name: [] for name in ("raised", "lowered", "beyond", "lower")}
    odd: list[str] = []
    for key, queue, offset, source in _largest(theirs, odd):
        topic, group = split_offset_key(key)
        mine = own.get(key, {}).get(queue, -1)
        before = -1 if previous is None else previous.get(key, {}).get(queue, -1)
        row = Row(key, queue, mine, offset, mine, source)
        takes_lower = group in accept_lower
        if offset == mine:
            continue
        if offset < mine and not takes_lower:
            found["lower"].append(row)
            continue
        if mine < before and offset <= before and not takes_lower:
            found["lowered"].append(row)
            continue
        held = last_held(topic, queue, offset)
        is_better = held >= 0 and (held > mine or takes_lower)
        row = row._replace(wanted=held if is_better else mine)
        if max(held, 0) < offset:
            found["beyond"].append(row)
        if row.wanted != mine:
            found["raised"].append(row)
    return Merged(**{name: tuple(rows) for name, rows in found.items()}, odd=tuple(odd))


def summary(rows: Sequence[Row], *, is_dry: bool) -> str:
    """Return the count of offsets that ``rows`` move, in words."""
    raised = [row for row in rows if row.wanted > row.own]
    text = (
        f"{'would raise' if is_dry else 'raised'} {len(raised)} offsets of "
        f"{len({split_offset_key(row.key)[1] for row in raised})} groups by "
        f"{sum(row.messages for row in raised)} messages"
    )
    if lowered := len(rows) - len(raised):
        text += f", {'would lower' if is_dry else 'lowered'} {lowered}"
    return text


def _largest(
    theirs: Sequence[tuple[str, Table]], odd: list[str]
) -> Iterator[tuple[str, int, int, str]]:
    """Give key, queue id, largest offset and its source; note in ``odd`` what is passed over."""
    known: dict[str, dict[int, tuple[int, str]]] = {}
    for source, table in theirs:
        for key, queues in table.items():
            if key.count("@") != 1:
                odd.append(f"{key!r} of {source} is no topic@group")
                continue
            kept = known.setdefault(key, {})
            for queue, offset in queues.items():
                if queue < 0 or offset < 0:
                    odd.append(f"{key} queue {queue} of {source} has the offset {offset}")
                elif queue not in kept or offset > kept[queue][0]:
                    kept[queue] = offset, source
    for key in sorted(known):
        for queue in sorted(known[key]):
            yield key, queue, *known[key][queue]
