"""kvConfig.json as a kill or a machine that stopped leaves it: its copy, or a refusal by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from failback.namesrv.kv_config import KVConfigManager
from failback.protocol.errors import ConfigError

pytestmark = pytest.mark.foreign

WHOLE = b'{"configTable":{"ORDER_TOPIC_CONFIG":{"orders":"broker-a:4"}}}'


def loaded(folder: Path, content: bytes | None, backup: bytes | None) -> str | None:
    path = folder / "kvConfig.json"
    for file, its in ((path, content), (folder / "kvConfig.json.bak", backup)):
        if its is not None:
            file.write_bytes(its)
    manager = KVConfigManager(path)
    manager.load()
    return manager.get("ORDER_TOPIC_CONFIG", "orders")


@pytest.mark.parametrize("content", [WHOLE, b"", bytes(64), WHOLE[:20], b"[1]"])
def test_the_spare_copy_takes_the_place_of_a_damaged_file(tmp_path: Path, content: bytes) -> None:
    assert loaded(tmp_path, content, WHOLE) == "broker-a:4"


@pytest.mark.parametrize("backup", [None, b"", WHOLE[:20]])
@pytest.mark.parametrize("content", [WHOLE[:20], b"[1]", b"\xff\xfe"])
def test_without_a_copy_it_is_refused_by_name(
    tmp_path: Path, content: bytes, backup: bytes | None
) -> None:
    with pytest.raises(ConfigError, match=r"kvConfig\.json"):
        loaded(tmp_path, content, backup)


def test_a_file_that_was_taken_away_stays_away(tmp_path: Path) -> None:
    assert loaded(tmp_path, None, WHOLE) is None
