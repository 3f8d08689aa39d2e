"""Each table of a broker, damaged in each way: its copy, or a refusal by name; never empty."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from failback.broker.config.config import BrokerConfig
from failback.broker.filters.consumer_filters import ConsumerFilterManager
from failback.broker.filters.subscription import of_heartbeat
from failback.broker.metadata.delay_offsets import DelayOffsets
from failback.broker.metadata.groups import SubscriptionGroupManager
from failback.broker.metadata.json_config import backup_of
from failback.broker.metadata.offsets.consumer_offset_manager import ConsumerOffsetManager
from failback.broker.metadata.topics import TopicConfigManager
from failback.protocol.clients import SubscriptionData
from failback.protocol.errors import CorruptStore
from failback.protocol.route import SubscriptionGroupConfig, TopicConfig
from tests.support.common.crossing import every_pair

pytestmark = pytest.mark.foreign

Table = Any
"""One of the five managers: ``table``, ``load`` and ``persist``."""
Damage = Callable[[bytes], bytes]

DAMAGES: Final[dict[str, Damage]] = {
    "empty": lambda _: b"",
    "zeros": lambda whole: bytes(len(whole)),
    "blank": lambda _: b"\n",
    "an empty object": lambda _: b"{}",
    "null for the table": lambda whole: re.sub(
        rb'(Table|Topic)"\s*:.*\S', rb'\1":null}', whole, flags=re.S
    ),
    "cut": lambda whole: whole[: len(whole) // 2],
    "cut at the end": lambda whole: whole.rstrip()[:-1],
    "zeros behind": lambda whole: whole[: len(whole) // 2] + bytes(512),
    "other bytes": lambda whole: b"\x93\xfe\x00\x41" * 64,
    "another kind": lambda _: b'"text"',
}
EMPTY: Final = ("empty", "zeros", "blank", "an empty object", "null for the table")


def _config(is_guarded: bool) -> BrokerConfig:
    rules = "guarded" if is_guarded else "compat"
    return BrokerConfig.from_properties({"failbackRules": rules, "brokerIP1": "127.0.0.1"})


def topics(folder: Path, is_guarded: bool) -> Table:
    return TopicConfigManager(folder / "topics.json", _config(is_guarded))


def groups(folder: Path, is_guarded: bool) -> Table:
    return SubscriptionGroupManager(folder / "subscriptionGroup.json", _config(is_guarded))


def offsets(folder: Path, is_guarded: bool) -> Table:
    return ConsumerOffsetManager(folder / "consumerOffset.json", is_atomic=lambda: is_guarded)


def delays(folder: Path, is_guarded: bool) -> Table:
    return DelayOffsets(folder / "delayOffset.json", is_atomic=lambda: is_guarded)


def filters(folder: Path, is_guarded: bool) -> Table:
    path = folder / "consumerFilter.json"
    return ConsumerFilterManager(path, lambda: 1_700_000_000_000, is_atomic=lambda: is_guarded)


def fill(table: Table) -> None:
    """Put something into a table of any kind that a start alone does not."""
    if isinstance(table, TopicConfigManager):
        table.update(TopicConfig("orders", 7, 7))
    elif isinstance(table, SubscriptionGroupManager):
        table.update(SubscriptionGroupConfig("billing", retry_max_times=3))
    elif isinstance(table, ConsumerOffsetManager):
        table.commit("billing", "orders", 0, 47)
    elif isinstance(table, DelayOffsets):
        table.table[3] = 11
    else:
        data = SubscriptionData("orders", "a > 2", sub_version=1, expression_type="SQL92")
        table.register("billing", [of_heartbeat(data)])


Make = Callable[[Path, bool], Table]
TABLES: Final[tuple[Make, ...]] = (topics, groups, offsets, delays, filters)


def written(make: Make, folder: Path) -> Table:
    """Return a table that its file holds, with a .bak that holds it too."""
    table = make(folder, False)
    fill(table)
    table.persist()
    backup_of(table.file.path).write_bytes(table.file.path.read_bytes())
    return table


@pytest.mark.parametrize(
    ("make", "damage", "is_guarded"), every_pair(TABLES, DAMAGES, [False, True])
)
def test_the_spare_copy_takes_the_place_of_a_damaged_table(
    tmp_path: Path, make: Make, damage: str, is_guarded: bool
) -> None:
    before = written(make, tmp_path)
    path = before.file.path
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    after = make(tmp_path, is_guarded)
    after.load()
    assert list(after.table) == list(before.table)


@pytest.mark.parametrize(
    ("make", "damage", "spare", "is_guarded"),
    every_pair(TABLES, DAMAGES, ["missing", "empty", "zeros", "cut"], [False, True]),
)
def test_without_a_copy_it_is_refused_by_name(
    tmp_path: Path, make: Make, damage: str, spare: str, is_guarded: bool
) -> None:
    path = written(make, tmp_path).file.path
    whole, backup = path.read_bytes(), backup_of(path)
    path.write_bytes(DAMAGES[damage](whole))
    if spare == "missing":
        backup.unlink()
    else:
        backup.write_bytes(DAMAGES[spare](whole))
    left = {each: each.read_bytes() for each in tmp_path.iterdir()}
    after = make(tmp_path, is_guarded)
    if not is_guarded and damage in EMPTY and spare in ("missing", *EMPTY):
        after.load()  # the real 4.9.7 starts empty too
        return
    with pytest.raises(CorruptStore, match=path.name):
        after.load()
    assert {each: each.read_bytes() for each in tmp_path.iterdir()} == left


@pytest.mark.parametrize("make", TABLES)
def test_a_broker_that_never_had_a_table_starts_without(tmp_path: Path, make: Make) -> None:
    table = make(tmp_path, True)
    before = dict(table.table)
    table.load()
    assert table.table == before
