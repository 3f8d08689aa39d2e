"""A broker is sent nonsense, in process: frames, reports, log frames and configuration files.

All of it is drawn from seeds; ``FAILBACK_FUZZ_SEED`` sets the first. What once broke something is
a case of its own in ``test_nonsense_once_harmful``.
"""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.faults.fuzz.config_fuzz import fuzz_config_files
from tests.faults.fuzz.fuzz_lab import fuzz_frames, fuzz_ha_frames, fuzz_reports, resident_bytes

MOST_GROWTH_BYTES = 64 << 20
SHARES = {"frames": 0.6, "reports": 0.15, "HA frames": 0.15, "files": 0.1}


@pytest.fixture(autouse=True)
def no_log_of_it_all() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


async def fuzz(folder: Path, what: str, count: int, seed: int) -> Counter[str]:
    random = Random(seed)
    if what == "frames":
        return await fuzz_frames(folder, random, count)
    if what == "reports":
        return await fuzz_reports(folder, random, count)
    if what == "HA frames":
        return await fuzz_ha_frames(folder, random, count)
    folder.mkdir()
    return fuzz_config_files(folder, random, count)


async def send_nonsense(folder: Path, what: str, total: int) -> None:
    """Send this kind's share of ``total`` and print what became of it."""
    seed = int(os.environ.get("FAILBACK_FUZZ_SEED", "1"))
    count = round(total * SHARES[what])
    before, began = resident_bytes(), time.monotonic()
    try:
        outcomes = await fuzz(folder / "it", what, count, seed)
    except Exception as error:
        raise AssertionError(f"FAILBACK_FUZZ_SEED={seed}: {error!r}") from error
    grown = resident_bytes() - before
    told = ", ".join(f"{number} {kind}" for kind, number in sorted(outcomes.items()))
    seconds = time.monotonic() - began
    print(f"\n{count} mutated {what} in {seconds:.0f} s: {told}; {grown / 1e6:+.1f} MB")
    assert sum(outcomes.values()) > count / 3
    assert grown < MOST_GROWTH_BYTES


@pytest.mark.parametrize("what", SHARES)
async def test_nonsense_breaks_nothing(tmp_path: Path, what: str) -> None:
    await send_nonsense(tmp_path, what, 24_000)


@pytest.mark.soak
@pytest.mark.parametrize("what", SHARES)
async def test_much_nonsense_breaks_nothing(tmp_path: Path, what: str) -> None:
    await send_nonsense(tmp_path, what, 980_000)
