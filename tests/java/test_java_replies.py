"""Request-reply of the unmodified Java client, on either engine."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from tests.java.test_java_filters import ENGINES, java_tool, make
from tests.support.common.polling import SCALE
from tests.support.java.apache import Engine
from tests.support.java.java_lab import Lab

TOPIC = "AskedTopic"


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_question_is_answered(lab: Lab, tmp_path: Path, engine: Engine) -> None:
    ns = lab.namesrv()
    broker = lab.broker(engine, ns)
    broker.start()
    await make(broker, 0)
    command = java_tool("RequestReply", ns.address, TOPIC, str(int(60_000 * SCALE)))
    done = await asyncio.to_thread(
        subprocess.run,
        command,
        capture_output=True,
        text=True,
        timeout=180 * SCALE,
        cwd=tmp_path,
        check=False,
    )
    assert "answer re: how late is it" in done.stdout, done.stdout + done.stderr
