"""When sending had recovered from an outage, of any number of failed attempts."""

from __future__ import annotations

from pathlib import Path
from random import Random

from failback.analytics.analysis.counting import families
from tests.support.analytics.run_analysis import analysed
from tests.support.analytics.run_builder import RunBuilder
from tests.support.common.counts import each_seed

MS = 1_000_000
QUIET_MS = 5_000
KILLS = (10_000, 60_000)
Send = tuple[int, int, bool]
"""Begin and end in ms, and whether it was good."""


def random_sends(seeded: Random) -> list[Send]:
    found = []
    for _ in range(seeded.choice([3, 40, 400])):
        begin = seeded.randrange(120_000)
        down = any(0 <= begin - kill < seeded.choice([500, 9_000, 40_000]) for kill in KILLS)
        good = seeded.random() > (0.9 if down else 0.01)
        found.append((begin, begin + seeded.choice([1, 30, 3_000]), good))
    return found


def recovered(sends: list[Send], kill: int) -> int | None:
    """End of the first good send that no failure follows within the quiet time, one by one."""
    bad = [begin for begin, end, good in sends if not good and end >= kill]
    after = min(bad, default=kill)
    ends = [
        end
        for begin, end, good in sends
        if good and end >= kill and end > after
        and not any(begin <= each < begin + QUIET_MS for each in bad)
    ]  # fmt: skip
    return min(ends, default=None)


@each_seed(25)
def test_the_first_good_send_that_lasts_ends_the_outage(seed: int, tmp_path: Path) -> None:
    seeded = Random(seed)
    sends = random_sends(seeded)
    builder = RunBuilder()
    for number, kill in enumerate(KILLS):
        builder.fault("KILL", kill, fid=f"f{number}")
        builder.fault("GONE", kill, fid=f"f{number}")
        builder.fault("ACCEPT", kill + 20_000, fid=f"f{number}")
    for lid, (begin, end, good) in enumerate(sends):
        builder.produce(lid, begin, end, "OK" if good else "TIMEOUT")
    analysis = analysed(builder.write(tmp_path / str(seed)))
    wanted = {n: recovered(sends, kill) for n, kill in enumerate(KILLS)}
    found = {n: at // MS for n, at in analysis.resumed.items()}
    assert found == {n: at for n, at in wanted.items() if at is not None}


def test_failures_are_as_many_rows_as_stretches_of_five_seconds(tmp_path: Path) -> None:
    builder = RunBuilder()
    builder.fault("KILL", 1_000)
    builder.fault("GONE", 1_000)
    for lid in range(4_000):
        builder.produce(lid, 1_000 + 10 * lid, 1_005 + 10 * lid, "CONN")
    counts = analysed(builder.write(tmp_path / "run")).counts.values
    assert families.FIRST_FAILED.of(counts).num_rows <= 9
