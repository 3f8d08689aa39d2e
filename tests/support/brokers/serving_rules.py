"""Who serves a pull, as a table: written from the rules of 4.9.8 and not from any code.

Read a row as: a broker of this role, with ``slaveReadEnable`` and ``offsetCheckInSlave`` so, asked
in this situation, answers this code, suggests this broker for the next pull, and says to go on
there. ``*`` is anything; the first row that fits counts. ``group`` is the group's ``brokerId``,
``slow`` its ``whichBrokerWhenConsumeSlowly``. ``near`` and ``far`` say whether what was read lies
within ``accessMessageInMemoryMaxRatio`` of the machine's memory from the log's end.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_TABLE: Final = """
role    read  check  situation      code  suggested  next

*       off   *      found-near        0  0          read
*       off   *      found-far         0  0          read
*       on    *      found-near        0  group      read
*       on    *      found-far         0  slow       read

*       off   *      filtered-near    20  0          read
*       off   *      filtered-far     20  0          read
*       on    *      filtered-near    20  group      read
*       on    *      filtered-far     20  slow       read

*       off   *      at-end           19  0          asked
*       on    *      at-end           19  group      asked
*       off   *      empty-at-0       19  0          asked
*       on    *      empty-at-0       19  group      asked

slave   *     off    behind-end       20  group      asked
slave   *     off    before-begin     20  group      asked
slave   *     off    empty-at-5       20  group      asked

*       off   *      behind-end       21  0          end
*       on    *      behind-end       21  group      end
*       off   *      before-begin     21  0          begin
*       on    *      before-begin     21  group      begin
*       off   *      empty-at-5       21  0          begin
*       on    *      empty-at-5       21  group      begin
"""

SITUATIONS: Final = (
    "found-near",
    "found-far",
    "filtered-near",
    "filtered-far",
    "at-end",
    "behind-end",
    "before-begin",
    "empty-at-0",
    "empty-at-5",
)


@dataclass(frozen=True, slots=True)
class Case:
    """One combination."""

    role: str
    slave_read_enable: bool
    offset_check_in_slave: bool
    group_broker_id: int
    slow_broker_id: int
    situation: str

    @property
    def is_slave(self) -> bool:
        return self.role == "slave"

    @property
    def is_far(self) -> bool:
        return self.situation.endswith("far")


@dataclass(frozen=True, slots=True)
class Served:
    """What the answer says. ``following`` is ``read``, ``asked``, ``begin`` or ``end``."""

    code: int
    suggested: int
    following: str


def expected(case: Case) -> Served:
    """Look a combination up."""
    switches = (
        ("on" if case.slave_read_enable else "off"),
        ("on" if case.offset_check_in_slave else "off"),
    )
    wanted = (case.role, *switches, case.situation)
    for line in _TABLE.strip().splitlines()[1:]:
        if not line:
            continue
        *condition, code, suggested, following = line.split()
        if all(part in ("*", value) for part, value in zip(condition, wanted, strict=True)):
            words = {"group": case.group_broker_id, "slow": case.slow_broker_id, "0": 0}
            return Served(int(code), words[suggested], following)
    raise AssertionError(f"no rule for {case}")


def combinations() -> Iterator[Case]:
    """Yield every combination; the ids are such that no two words give the same number."""
    for role, read, check, group, slow, situation in itertools.product(
        ("master", "slave"), (False, True), (False, True), (0, 1, 3), (0, 1, 7), SITUATIONS
    ):
        yield Case(role, read, check, group, slow, situation)
