"""A folder that is not mounted, or holds what others left, is named; nothing is destroyed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from failback.broker.store.message_store import MessageStore
from failback.protocol.errors import StoreError
from tests.support.store.store_kit import kill, log_messages, open_store, put, put_all

QUEUE = Path("consumequeue") / "TopicTest" / "0"


def filled(root: Path, stop: Callable[[MessageStore], None]) -> list[bytes]:
    (root / "config").mkdir()
    (root / "config" / "topics.json").write_text("{}")
    store = open_store(root)
    bodies = [bytes([number]) * 100 for number in range(20)]
    put_all(store, *bodies, properties=b"KEYS\x01a")
    stop(store)
    return bodies


def everything(root: Path) -> dict[str, bytes]:
    """All files but the checkpoint's neighbours that say that a broker runs."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and path.name not in ("lock", "abort", "reserve")
    }


@pytest.mark.parametrize("what", ["nothing", "lost+found"])
@pytest.mark.parametrize("folder", ["commitlog", "consumequeue", "index", "config"])
@pytest.mark.parametrize("stop", [MessageStore.close, kill])
def test_a_folder_that_is_not_mounted_is_named_and_all_is_there_afterwards(
    tmp_path: Path, folder: str, what: str, stop: Callable[[MessageStore], None]
) -> None:
    root = tmp_path / "store"
    root.mkdir()
    bodies = filled(root, MessageStore.close)
    if stop is kill:
        kill(open_store(root))
    before = everything(root)
    away = tmp_path / "away"
    (root / folder).rename(away)
    (root / folder).mkdir()
    if what != "nothing":
        (root / folder / what).mkdir()
    with pytest.raises(StoreError, match=str(root / folder)):
        open_store(root)
    assert not any((root / folder).glob("*[0-9]*"))
    if what != "nothing":
        (root / folder / what).rmdir()
    (root / folder).rmdir()
    away.rename(root / folder)
    assert everything(root) == before
    store = open_store(root)
    assert [message.body for message in log_messages(store)] == bodies
    assert put(store).queue_offset == 20
    store.close()


def test_queues_that_were_removed_are_made_again(tmp_path: Path) -> None:
    filled(tmp_path, MessageStore.close)
    for path in sorted((tmp_path / "consumequeue").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (tmp_path / "consumequeue").rmdir()
    store = open_store(tmp_path)
    assert put(store).queue_offset == 20
    store.close()


@pytest.mark.parametrize("place", [Path("commitlog"), QUEUE])
@pytest.mark.parametrize(
    "name", ["lost+found", ".nfs000000000001", "00000000000000000000.bak", "notes.txt", "1"]
)
def test_what_others_left_is_passed_over_with_a_line(
    tmp_path: Path, place: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    bodies = filled(tmp_path, MessageStore.close)
    path = tmp_path / place / name
    path.mkdir() if name == "lost+found" else path.write_bytes(b"x")
    with caplog.at_level(logging.WARNING):
        store = open_store(tmp_path)
    assert [message.body for message in log_messages(store)] == bodies
    assert f"{path} is no file of the store" in caplog.text
    store.close()
    assert path.exists()
