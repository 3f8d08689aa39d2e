"""One lab per test, on either engine; name server and an untouched broker shared by the tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.faults.modes.mode_evidence import BROKER_SCALE
from tests.faults.modes.mode_lab import ModeLab, unique
from tests.support.java.apache import Broker, Engine, NameServer, server_home


@pytest.fixture(scope="package")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NameServer]:
    """A name server of ours for all tests on our engine; brokers have names of their own."""
    found = NameServer("failback", tmp_path_factory.mktemp("namesrv"))
    try:
        found.start()
        yield found
    finally:
        found.process.dispose()


@pytest.fixture(scope="package")
def standing(name_server: NameServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A master of ours that no test kills or reconfigures."""
    found = Broker(
        "failback",
        tmp_path_factory.mktemp("standing"),
        name_server.address,
        name=unique("standing"),
        settings={"failbackTimeScale": BROKER_SCALE},
    )
    try:
        found.start()
        yield found
    finally:
        found.process.dispose()


@pytest.fixture
async def lab(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ModeLab]:
    """A lab of the engine that the test asks for, by default ours."""
    engine: Engine = getattr(request, "param", "failback")
    if engine == "apache":
        server_home()
    shared = request.getfixturevalue("name_server") if engine == "failback" else None
    async with ModeLab(tmp_path, engine, shared) as found:
        yield found
