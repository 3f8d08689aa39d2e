"""``failback offsets`` gives a returned Apache master all queues of two groups, and no more."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

from tests.support.carry.eight_queues import BEFORE, MEANWHILE, EightQueues
from tests.support.java.java_lab import Lab


async def test_a_saved_table_of_an_apache_slave_comes_back_in_one_command(
    lab: Lab, tmp_path: Path
) -> None:
    pair = await asyncio.to_thread(EightQueues, lab, "apache")
    async with pair.admin:
        await pair.die()
        assert (await pair.said("save", "kept", cwd=tmp_path))[0] == 0
        await asyncio.to_thread(pair.master.start)
        assert await pair.offsets(pair.master.address) == [BEFORE] * 16

        code, out, err = await pair.said("restore", "kept", "--json", cwd=tmp_path)
        assert code == 0, err
        (audit, billing) = json.loads(out)["groups"]
        assert audit | {"group": "billing"} == billing
        lost = 8 * (MEANWHILE - BEFORE)
        figures = [billing[name] for name in ("comesAgainWithout", "skipped", "raised", "online")]
        assert figures == [lost, lost, 8, False]
        assert await pair.offsets(pair.master.address) == [BEFORE] * 16
        began = time.monotonic()
        code, out, err = await pair.said("restore", "kept", "--yes", cwd=tmp_path)
        print(f"16 offsets restored in {time.monotonic() - began:.1f} s")
        assert (code, "Restored 16 offsets" in out) == (0, True), err
        assert await pair.offsets(pair.master.address) == [MEANWHILE] * 16
