"""Holds what the live surfaces answered against what consumers had handled at that moment. Pure.

An answer is false where it says more than was so: an offset as safe below which less, or above
which more, was handled; a zero, an "ok" or "never went down" while a new member would be handed
what was handled before. "Not known" is a fault where the slave had what clients committed to it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

Queue = tuple[str, int]
"""Group and queue id."""
ALL: Final = -1
"""The queue id of an answer that is about all queues of a group."""
SLACK_SECONDS: Final = 12.0
"""Clients commit every 5 s, and the master writes its file every 5 s; 2 s for asking."""
PRINT_SECONDS: Final = 2.0
"""A line that a consumer printed is read so much later on a busy machine."""


class Answer(NamedTuple):
    """One statement of one surface; times are Unix seconds."""

    at: float
    """When it was asked."""
    surface: str
    group: str
    queue: int = ALL
    safe: int | None = None
    bound: str = "exact"
    says_none: bool = False
    """It says that nothing is at risk: 0, "ok" or "It never went down"."""
    says_unknown: bool = False
    until: float = 0.0
    """When it answered; 0: at once."""


class Sample(NamedTuple):
    """One look at all that is so."""

    at: float
    handled: Mapping[Queue, int]
    """The end of what consumers were handed."""
    master: Mapping[Queue, int] | None
    """What the master holds; ``None`` while it is silent."""
    slave: Mapping[Queue, int]

    def lacking(self, handled: Mapping[Queue, int], group: str, queue: int) -> int:
        """Messages of ``handled`` that a member started now is handed again."""
        held = self.slave if self.master is None else self.master
        return sum(
            max(0, end - held.get(key, 0))
            for key, end in handled.items()
            if key[0] == group and queue in (ALL, key[1])
        )


@dataclass(slots=True)
class Truth:
    """Samples in the order of their times."""

    samples: list[Sample] = field(default_factory=list)

    def before(self, at: float) -> Sample:
        """The last sample that is not younger; nothing was handled before the first, as far as
        is known."""
        number = bisect_right(self.samples, at, key=lambda each: each.at)
        return self.samples[number - 1] if number else Sample(at, {}, None, {})

    def after(self, at: float) -> Sample:
        number = bisect_right(self.samples, at, key=lambda each: each.at)
        return self.samples[min(number, len(self.samples) - 1)]

    def served_by_slave(self, group: str) -> tuple[float, float] | None:
        """From the first commit to the slave, of all queues, to the last sample that shows it."""
        told: Mapping[Queue, int] | None = None
        began = ended = None
        for each in self.samples:
            if each.master is not None and began is None:
                told = each.master
            mine = {key: end for key, end in each.slave.items() if key[0] == group}
            above = told is not None and mine and all(
                end > told.get(key, 0) for key, end in mine.items()
            )  # fmt: skip
            if above and each.master is None and began is None:
                began = each.at
            behind = each.master is None or any(
                end > each.master.get(key, 0) for key, end in mine.items()
            )
            if began is not None and not behind:
                break
            ended = each.at if began is not None else None
        return None if began is None or ended is None else (began, ended)


def false_answers(
    truth: Truth, answers: Iterable[Answer], slack_seconds: float = SLACK_SECONDS
) -> Iterator[tuple[Answer, str]]:
    """Give each false answer, and why."""
    windows = {group: truth.served_by_slave(group) for group, _ in truth.samples[-1].handled}
    for each in answers:
        then = truth.before(each.at - slack_seconds).handled
        now, later = truth.before(each.at), truth.after(max(each.at, each.until) + PRINT_SECONDS)
        key = each.group, each.queue
        if each.safe is not None and each.queue != ALL:
            if each.safe > later.handled.get(key, 0):
                yield each, f"{later.handled.get(key, 0)} are handled: the rest would be skipped"
            elif each.bound == "exact" and each.safe < then.get(key, 0):
                yield each, f"{then[key]} were handled {slack_seconds:g} s before"
        if each.says_none:
            lacking = now.lacking(then, each.group, each.queue)
            if lacking and later.lacking(then, each.group, each.queue):
                yield each, f"{lacking} would be re-consumed"
        window = windows.get(each.group)
        began, ended = window or (0.0, 0.0)
        is_asked = began + slack_seconds < each.at and max(each.at, each.until) < ended
        if each.says_unknown and is_asked:
            yield each, "the slave has what was committed to it"


def counted(answers: Sequence[Answer], found: Sequence[tuple[Answer, str]]) -> dict[str, str]:
    """Return by surface ``false of asked``."""
    return {
        surface: f"{sum(each.surface == surface for each, _ in found)} of "
        f"{sum(each.surface == surface for each in answers)}"
        for surface in sorted({each.surface for each in answers})
    }
