"""The store is cut off after every write and inside of writes: nothing promised is lost.

Each case is one crash of one seeded life: the process killed at a step of the journal, or inside
a write; or the machine stopped there, with nothing unsynced on the disk, or any of its sectors. A
failure names the seed of its life; ``FAILBACK_CRASH_SEED`` runs that one alone.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from tests.faults.store.slave_crashes import check_slave, live_as_slave
from tests.support.store.crash_scenario import ROOT, SETTINGS, Life, check, live
from tests.support.store.crashing_files import CrashingFiles
from tests.support.store.store_kit import Clock, kill, open_store

STEPS = 40
ANY_BYTE = 1 << 20


async def crash_everywhere(seed: int, counts: Counter[str]) -> None:
    """Live up to three times, each after a crash of the one before, and crash at each step."""
    random, files, clock = Random(seed), CrashingFiles(), Clock()
    for _ in range(random.randint(1, 3)):
        life = await live(files, clock, random, STEPS)
        steps = range(life.begin + 1, len(files.journal) + 1)
        for point in steps:
            crash_at(life, point, random, counts)
        files = left_by_a_crash(life, random.choice(steps), random)


def crash_at(life: Life, point: int, random: Random, counts: Counter[str]) -> None:
    files = life.files
    is_write = point < len(files.journal) and files.journal[point].kind in ("write", "rewrite")
    if files.journal[point - 1].kind == "note" and not is_write:
        return  # nothing happened since the point before
    counts["killed after a step"] += 1
    crashed = files.after_kill(point)
    check_twice(life, crashed, point, random, counts, killed=True)
    if is_write:
        counts["killed inside a write"] += 1
        torn = random.randint(0, len(files.journal[point].data))
        check_twice(life, files.after_kill(point, torn), point, random, counts, killed=True)
    counts["power lost, all unsynced gone"] += 1
    crashed = files.after_power_loss(point, lambda step: False)
    check_twice(life, crashed, point, random, counts, killed=False)
    counts["power lost, any sectors kept"] += 1
    crashed = files.after_torn_power_loss(point, random)
    check_twice(life, crashed, point, random, counts, killed=False)


def check_twice(
    life: Life,
    files: CrashingFiles,
    point: int,
    random: Random,
    counts: Counter[str],
    *,
    killed: bool,
) -> None:
    """Check; now and then the start that follows is cut off as well."""
    before = len(files.journal)
    if random.random() < 0.15:
        kill(open_store(ROOT, files, Clock(life.clock.now), **SETTINGS))
        again = random.randint(before, len(files.journal))
        counts["and again while starting"] += 1
        files = (
            files.after_kill(again, random.randrange(ANY_BYTE))
            if random.random() < 0.5
            else files.after_torn_power_loss(again, random)
        )
    kill(check(life, files, point, killed=killed and not files.boot.endswith("'")))


def left_by_a_crash(life: Life, point: int, random: Random) -> CrashingFiles:
    if random.random() < 0.5:
        return life.files.after_kill(point)
    return life.files.after_torn_power_loss(point, random)


async def crash_a_slave_everywhere(seed: int, counts: Counter[str]) -> None:
    """Live once as a slave whose queues are behind its log, and crash at each step.

    Of unsynced writes the disk keeps the first: a slave writes pieces of records, and no checksum
    of the format tells that one is missing from a record's properties.
    """
    random = Random(seed)
    life = await live_as_slave(random, STEPS)
    journal = life.files.journal
    for point in range(life.begin + 1, len(journal) + 1):
        is_write = point < len(journal) and journal[point].kind == "write"
        if journal[point - 1].kind == "note" and not is_write:
            continue
        until = random.randint(0, point)
        crashes = {
            "killed after a step": life.files.after_kill(point),
            "power lost, all unsynced gone": life.files.after_power_loss(point, lambda step: False),
            "power lost, the first kept": life.files.after_power_loss(point, until.__gt__),
        }
        if is_write:
            torn = random.randint(0, len(journal[point].data))
            crashes["killed inside a write"] = life.files.after_kill(point, torn)
        for name, files in crashes.items():
            counts[name] += 1
            check_slave(life, files, point, killed=name.startswith("killed"))


async def run_seeds(
    first: int,
    cases: int,
    crash: Callable[[int, Counter[str]], Awaitable[None]] = crash_everywhere,
) -> None:
    """Play lives from seed ``first`` on until ``cases`` crashes were survived; print a table."""
    counts: Counter[str] = Counter()
    alone = os.environ.get("FAILBACK_CRASH_SEED")
    seed = int(alone) if alone else first
    while sum(counts.values()) < cases:
        try:
            await crash(seed, counts)
        except Exception as error:
            raise AssertionError(f"FAILBACK_CRASH_SEED={seed}: {error}") from error
        if alone:
            break
        seed += 1
    print(f"\n{sum(counts.values())} crashes of {seed - first} lives")
    for what, count in counts.items():
        print(f"  {count:7d} {what}")


async def test_no_crash_loses_what_was_promised() -> None:
    await run_seeds(first=1, cases=1_500)


@pytest.mark.soak
async def test_no_crash_of_many_loses_what_was_promised() -> None:
    await run_seeds(first=1_000, cases=30_000)


async def test_no_crash_of_a_slave_loses_what_it_held() -> None:
    await run_seeds(first=1, cases=600, crash=crash_a_slave_everywhere)


@pytest.mark.soak
async def test_no_crash_of_a_slave_of_many_loses_what_it_held() -> None:
    await run_seeds(first=1_000, cases=10_000, crash=crash_a_slave_everywhere)
