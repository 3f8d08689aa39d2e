"""Stores prepared for a benchmark: written by our store at disk speed, opened by either engine.

Runs as a process of its own: ``python -m tests.benchmarks.broker.stores ROOT BYTES TOPIC BODY``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import msgspec

from failback.broker.store.config import StoreConfig
from failback.broker.store.message_store import MessageStore
from failback.protocol.message import pack_host
from failback.protocol.route import SubscriptionGroupConfig
from tests.benchmarks.broker.engines import LOG_FILE_BYTES, QUEUES
from tests.support.processes.child_process import ROOT, failback_environment

_HOST: Final = pack_host("127.0.0.1", 10911)
_PER_COMMIT: Final = 64
_PROPERTIES: Final = b"UNIQ_KEY\x017F00000100002A9F0000000000000000\x02CLUSTER\x01bench"


def fill(root: Path, log_bytes: int, topic: str, body_bytes: int = 1024) -> int:
    """Write a store of ``log_bytes`` in a process of its own; return where its log ends."""
    module = "tests.benchmarks.broker.stores"
    arguments = [str(root), str(log_bytes), topic, str(body_bytes)]
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **failback_environment()},
    )
    write_topics(root, {topic: QUEUES})
    return int(done.stdout)


def write_groups(root: Path, groups: list[str]) -> None:
    """Write ``config/subscriptionGroup.json`` with these groups."""
    table = {name: msgspec.json.decode(SubscriptionGroupConfig(name).to_json()) for name in groups}
    _write_table(root, "subscriptionGroup.json", {"subscriptionGroupTable": table})


def write_topics(root: Path, topics: dict[str, int]) -> None:
    """Write ``config/topics.json`` with these topics and their numbers of queues."""
    table = {
        name: {
            "order": False,
            "perm": 6,
            "readQueueNums": queues,
            "topicFilterType": "SINGLE_TAG",
            "topicName": name,
            "topicSysFlag": 0,
            "writeQueueNums": queues,
        }
        for name, queues in topics.items()
    }
    _write_table(root, "topics.json", {"topicConfigTable": table})


def _write_table(root: Path, name: str, table: dict[str, object]) -> None:
    version = {"counter": 1, "timestamp": time.time_ns() // 1_000_000}
    path = root / "config" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.encode({"dataVersion": version, **table}))


def copy(source: Path, target: Path) -> None:
    """Copy a store, holes included."""
    target.parent.mkdir(parents=True, exist_ok=True)
    command = ["cp", "-r", "--sparse=always", "--reflink=auto", str(source), str(target)]
    subprocess.run(command, check=True)


def _write(store: MessageStore, log_bytes: int, topic: bytes, body_bytes: int) -> int:
    body, now = os.urandom(body_bytes), time.time_ns() // 1_000_000
    while store.max_physical_offset + _PER_COMMIT * (body_bytes + 256) <= log_bytes:
        for number in range(_PER_COMMIT):
            store.append(
                topic=topic,
                queue_id=number % QUEUES,
                flag=0,
                sys_flag=0,
                born_timestamp=now,
                born_host=_HOST,
                reconsume_times=0,
                body=body,
                properties=_PROPERTIES,
                tags_code=0,
            )
        store.commit_pending()
    return store.max_physical_offset


def main() -> int:
    root, log_bytes, topic, body_bytes = sys.argv[1:]
    store = MessageStore(
        StoreConfig(root=Path(root), store_host=_HOST, mapped_file_bytes=LOG_FILE_BYTES)
    )
    store.load()
    end = _write(store, int(log_bytes), topic.encode(), int(body_bytes))
    store.close()
    print(end)
    return 0


if __name__ == "__main__":
    sys.exit(main())
