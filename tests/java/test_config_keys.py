"""The key catalogue beside real brokers of both engines: set by 25, read back by 26."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import suppress

import pytest

from failback.client.admin import AdminClient
from failback.operator.catalogue import (
    ConfigKey,
    config_keys,
    known_keys,
    same_value,
    unknown_key_hint,
)
from failback.protocol.errors import BrokerError
from tests.support.apache import Broker, Engine, client_home, java, server_home
from tests.support.java_lab import Lab
from tests.support.polling import SCALE

pytestmark = pytest.mark.java

APACHE = "4.9.7"
_TYPES = {"int": "int", "long": "int", "boolean": "bool", "String": "string", "double": "float"}
# Names of files and services, which a test must not move under a running broker.
_SKIPPED = ("namesrvAddr",)
LIVE = [row for row in config_keys().values() if row.change == "live" and row.name not in _SKIPPED]
TYPO = "fileReservedTimes"


@pytest.fixture(scope="module")
def apache_keys() -> dict[str, tuple[str, str]]:
    """Java type and default of every key of the Apache broker."""
    classes = f"{server_home()}/lib/*:{client_home()}/classes"
    command = [java(), "-Xshare:auto", "-cp", classes, "ConfigKeys"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120 * SCALE)
    rows = (line.split("\t") for line in done.stdout.splitlines())
    return {key: (kind, default) for key, kind, default in rows}


@pytest.fixture(scope="module", params=["failback", "apache"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    engine: Engine = request.param
    lab = Lab(tmp_path_factory.mktemp(engine))
    try:
        server_home()
        found = lab.broker(engine, lab.namesrv(), settings={TYPO: "48"})
        found.start()
        yield found
    finally:
        lab.dispose()


def test_the_catalogue_has_every_key_of_apache_with_type_and_default(
    apache_keys: dict[str, tuple[str, str]],
) -> None:
    known = known_keys("apache", APACHE)
    assert set(apache_keys) - set(known) == set()
    for key, (kind, default) in apache_keys.items():
        row = known[key]
        if row.type in ("int", "bool", "string", "float"):
            assert (key, row.type) == (key, _TYPES[kind])
        if row.type == "int":
            assert (key, row.bits) == (key, 64 if kind == "long" else 32)
        if row.default is not None:
            assert (key, row.default) == (key, default)


def other_value(row: ConfigKey, value: str) -> str:
    """Return a value that differs from ``value`` and hurts nobody."""
    if row.type == "bool":
        return "false" if value == "true" else "true"
    if row.name == "brokerPermission":
        return "4"
    return str(int(value) + 1)


@pytest.mark.parametrize("row", LIVE, ids=lambda row: row.name)
async def test_a_live_key_is_set_by_25_and_read_by_26(broker: Broker, row: ConfigKey) -> None:
    async with AdminClient([]) as admin:
        before = (await admin.broker_config(broker.address))[row.name]
        wanted = other_value(row, before)
        await admin.update_broker_config(broker.address, {row.name: wanted})
        after = (await admin.broker_config(broker.address))[row.name]
        await admin.update_broker_config(broker.address, {row.name: before})
        again = (await admin.broker_config(broker.address))[row.name]
    assert not same_value(row.name, before, wanted)
    assert same_value(row.name, after, wanted)
    assert same_value(row.name, again, before)


async def test_an_echo_proves_nothing_about_a_key(broker: Broker) -> None:
    """26 shows what the file held, known or not, so only the catalogue can tell a typo."""
    async with AdminClient([]) as admin:
        assert (await admin.broker_config(broker.address))[TYPO] == "48"
        await admin.update_broker_config(broker.address, {TYPO: "72", "noSuchKey": "1"})
        shown = await admin.broker_config(broker.address)
    assert (shown[TYPO], "noSuchKey" in shown) == ("72", False)
    version = APACHE if broker.engine == "apache" else "0.1.0"
    assert unknown_key_hint(TYPO, broker.engine, version) == (
        f"{TYPO} is not a broker.conf key of {broker.engine} {version},"
        " did you mean fileReservedTime"
    )


async def test_a_value_that_a_broker_cannot_read_shows_in_26(broker: Broker) -> None:
    async with AdminClient([]) as admin:
        before = (await admin.broker_config(broker.address))["fileReservedTime"]
        with suppress(BrokerError):  # Apache answers 0 and keeps silent, ours says why
            await admin.update_broker_config(broker.address, {"fileReservedTime": "soon"})
        after = (await admin.broker_config(broker.address))["fileReservedTime"]
    assert same_value("fileReservedTime", after, before)
