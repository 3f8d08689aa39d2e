"""Decides whether a person has to act for a group in a failover, and says it in one line. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from failback.common.numbers import count


class GroupStake(NamedTuple):
    """One group whose offsets on a pair are going to be overwritten, or were."""

    group: str
    messages: int
    """A lower bound of what comes again."""
    members: int | None
    """Its members now; ``None``: not known."""

    @property
    def must_act(self) -> bool:
        """Whether nothing but a person stores its offsets."""
        return not self.members


def act_or_wait(
    stakes: Iterable[GroupStake], command: str | None, seconds_left: float | None = None
) -> list[str]:
    """Return one line for each group, those first for which a person has to act.

    Args:
        stakes: The groups.
        command: It stores the offsets of all of them; ``None``: there is none.
        seconds_left: Until the slave has surely copied its master; ``None``: not known, or past.
    """
    ordered = sorted(stakes, key=lambda each: (not each.must_act, -each.messages, each.group))
    width = max((len(each.group) for each in ordered), default=0)
    return [
        f"{'ACT ' if each.must_act else 'wait'}  {each.group:{width}}  "
        f"{_what(each, command, seconds_left)}"
        for each in ordered
    ]


def _what(each: GroupStake, command: str | None, seconds_left: float | None) -> str:
    if each.members:
        runs = "1 member runs" if each.members == 1 else f"{each.members} members run"
        return f"{runs}; {'stores its' if each.members == 1 else 'store their'} offsets by itself"
    known = "no member" if each.members == 0 else "members are not known"
    copies = "" if seconds_left is None else f"; slave copies in about {seconds_left:.0f} s"
    return f"{known}; {count(each.messages)} will come again{copies}" + (
        f": {command}" if command else ""
    )
