"""The key catalogue beside real brokers of both engines: set by 25, read back by 26."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import suppress

import pytest

from failback.client.admin.admin import AdminClient
from failback.operator.engines.catalogue import (
    ConfigKey,
    config_keys,
    known_keys,
    same_value,
    unknown_key_hint,
)
from failback.operator.schema.rule_texts import MANAGED_BROKER_KEYS
from failback.protocol.errors import BrokerError
from tests.support.common.polling import SCALE
from tests.support.java.apache import Broker, Engine, client_folders, java, server_home
from tests.support.java.java_lab import Lab

APACHE = "4.9.7"
VERSIONS = {"failback": "0.1.0", "apache": APACHE}
_TYPES = {"int": "int", "long": "int", "boolean": "bool", "String": "string"}
_TYPES |= dict.fromkeys(("double", "float"), "float")
TYPO = "fileReservedTimes"
_NOT_FROM_26 = {
    "failback": {"enableDLegerCommitLog"},
    "apache": {"enableBatchPush"},
}
"""Known keys that a broker does not show: what is refused before any broker sees it, and one whose
Java field has another name than its setter."""
_OTHER_NAMES = {"isEnableBatchPush"}
_OTHER = {
    "brokerPermission": "4",
    "brokerIP1": "127.0.0.2",
    "brokerIP2": "127.0.0.2",
    "failbackAdminFrom": "10.0.0.0/8",
    "failbackHaFrom": "10.0.0.0/8",
    "failbackBindAddress": "127.0.0.2",
    "failbackMembers": "127.0.0.1:9",
    "haMasterAddress": "127.0.0.1:9",
    "deleteWhen": "05",
    "messageDelayLevel": "1s 5s",
    "failbackTimeScale": "0.5",
}
"""A second value of keys that a test must not set to anything."""


def keys_of(version: str) -> dict[str, tuple[str, str]]:
    """Return Java type and default of every key of an Apache broker."""
    _, ours = client_folders()
    classes = f"{server_home(version)}/lib/*:{ours}"
    command = [java(), "-Xshare:auto", "-cp", classes, "ConfigKeys"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120 * SCALE)
    # Brokers of 5.x also say where their log is.
    rows = (line.split("\t") for line in done.stdout.splitlines() if "\t" in line)
    # Where a key has two setters, the one of a text is taken: it is the last.
    ordered = sorted(rows, key=lambda row: row[1] == "String")
    return {key: (kind, default) for key, kind, default in ordered}


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
        (found.folder / "tls.properties").touch()  # which useTLS asks for
        yield found
    finally:
        lab.dispose()


@pytest.mark.parametrize("version", [APACHE, "5.1.4", "5.3.3"])
def test_the_catalogue_has_every_key_of_apache_and_no_other_with_type_and_default(
    version: str,
) -> None:
    known = known_keys("apache", version)
    found = keys_of(version)
    assert (set(found) - set(known), set(known) - set(found)) == (set(), set())
    for key, (kind, default) in found.items():
        row = known[key]
        if row.type in ("int", "bool", "string", "float"):
            assert (key, row.type) == (key, _TYPES[kind])
        if row.type == "int":
            assert (key, row.bits) == (key, 64 if kind == "long" else 32)
        is_used = row.change in ("live", "immutable") and key not in MANAGED_BROKER_KEYS
        if row.default is not None and (version == APACHE or is_used):
            assert (key, row.default) == (key, default)


def other_value(row: ConfigKey, value: str) -> str:
    """Return a value that differs from ``value`` and hurts nobody for a moment."""
    if row.name in _OTHER:
        return _OTHER[row.name]
    if row.name == "namesrvAddr":
        return f"{value};127.0.0.1:9"
    if row.type == "bool":
        return "false" if value == "true" else "true"
    if row.type == "int":
        return str(int(value or 0) + 1)
    if row.type == "float":
        return format(float(value or 1) + 0.5, "g")
    if row.type.startswith("enum:"):
        return next(word for word in row.type[5:].split(",") if word != value)
    return f"{value}x"


async def test_the_catalogue_has_the_keys_that_a_broker_shows(broker: Broker) -> None:
    """All of them, and none that no broker of this version has: a typo must be told."""
    async with AdminClient([]) as admin:
        shown = set(await admin.broker_config(broker.address))
    known = set(known_keys(broker.engine, VERSIONS[broker.engine]))
    own = set(known_keys("failback")) - set(known_keys("apache"))
    assert shown - known - own - _OTHER_NAMES == {TYPO}
    if broker.engine == "failback":  # Apache shows no key without a value
        assert known - shown == _NOT_FROM_26["failback"]


def set_by_25(engine: str) -> list[ConfigKey]:
    """Return the keys that the operator, or a person, may set in a running broker."""
    rows = known_keys(engine, VERSIONS[engine]).values()
    found = [row for row in rows if row.change != "refused"]
    return [row for row in found if row.name not in _NOT_FROM_26[engine]]


async def test_every_key_is_set_by_25_and_read_by_26(broker: Broker) -> None:
    """Keys of class live are in force then. Of others ours refuses what only a start takes up."""
    rows = set_by_25(broker.engine)
    assert len(rows) > 90
    wrong: dict[str, tuple[str, str | None]] = {}
    async with AdminClient([], timeout_ms=10_000 * SCALE) as admin:

        async def set_and_read(row: ConfigKey, value: str) -> bool:
            try:
                await admin.update_broker_config(broker.address, {row.name: value})
            except BrokerError as error:
                is_late = row.change != "live" and "nothing was changed" in error.remark
                if broker.engine == "apache" or not is_late:
                    raise
                return False
            found = (await admin.broker_config(broker.address)).get(row.name)
            if found is None or not same_value(row.name, found, value):
                wrong[row.name] = (value, found)
            return True

        start = await admin.broker_config(broker.address)
        for row in rows:
            before = start.get(row.name, "")
            wanted = other_value(row, before)
            assert not same_value(row.name, before, wanted)
            assert row.problem(wanted) is None
            is_set = await set_and_read(row, wanted)
            if is_set and (row.name in start or row.type == "string"):
                await set_and_read(row, before)
        end = await admin.broker_config(broker.address)
    assert wrong == {}
    assert {key: end[key] for key in start} == start


async def test_a_key_of_another_engine_or_version_is_not_taken(broker: Broker) -> None:
    known = known_keys(broker.engine, VERSIONS[broker.engine])
    strange = {row.name for row in config_keys().values() if row.name not in known}
    assert strange
    async with AdminClient([]) as admin:
        before = await admin.broker_config(broker.address)
        asked = {name: "1" for name in strange if name not in before}
        await admin.update_broker_config(broker.address, asked)
        assert await admin.broker_config(broker.address) == before
    version = VERSIONS[broker.engine]
    assert all(unknown_key_hint(name, broker.engine, version) for name in strange)


async def test_an_echo_proves_nothing_about_a_key(broker: Broker) -> None:
    """26 shows what the file held, known or not, so only the catalogue can tell a typo."""
    async with AdminClient([]) as admin:
        assert (await admin.broker_config(broker.address))[TYPO] == "48"
        await admin.update_broker_config(broker.address, {TYPO: "72", "noSuchKey": "1"})
        shown = await admin.broker_config(broker.address)
    assert (shown[TYPO], "noSuchKey" in shown) == ("72", False)
    version = VERSIONS[broker.engine]
    assert unknown_key_hint(TYPO, broker.engine, version) == (
        f"{TYPO} is not a broker.conf key of {broker.engine} {version},"
        ' did you mean "fileReservedTime"?'
    )


async def test_a_value_that_a_broker_cannot_read_shows_in_26(broker: Broker) -> None:
    async with AdminClient([]) as admin:
        before = (await admin.broker_config(broker.address))["fileReservedTime"]
        with suppress(BrokerError):  # Apache answers 0 and keeps silent, ours says why
            await admin.update_broker_config(broker.address, {"fileReservedTime": "soon"})
        after = (await admin.broker_config(broker.address))["fileReservedTime"]
    assert same_value("fileReservedTime", after, before)
