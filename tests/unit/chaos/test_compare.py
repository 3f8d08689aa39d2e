"""Comparisons: which server keeps what, proofs of kills, and bad input."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from failback.chaos.compare import kafka_cluster, redis_cluster
from failback.chaos.compare.rows import body_of, identity_of
from failback.chaos.compare.servers import Server, death_of, free_ports
from failback.chaos.compare.settings import SETTINGS, settings_of
from failback.chaos.errors import TargetError
from failback.protocol.errors import ConfigError


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    made = Server("sleeper", command, tmp_path / "log", 1, free_ports(1)[0])
    made.start()
    yield made
    made.end()


def test_a_kill_is_proved_by_the_status_of_the_child_and_its_address(server: Server) -> None:
    sent, death = server.kill()
    assert sent.issued <= sent.returned <= death.seen
    assert (death.signal, death.code, death.doubt) == (9, None, "")
    assert death_of(1, 1, 1, is_open=False).doubt == "it was sent SIGKILL and ended with status 1"
    assert "accepts connections" in death_of(1, 1, -9, is_open=True).doubt


def test_a_server_that_ended_before_is_not_killed(server: Server) -> None:
    server.end()
    with pytest.raises(TargetError, match="it had ended before: -15"):
        server.kill()


def test_a_message_is_known_by_its_queue_and_number() -> None:
    for qid, lseq in ((0, 0), (3, 1 << 40)):
        assert identity_of(body_of(qid, lseq)) == (qid, lseq)


def test_what_decides_where_a_group_and_a_stream_are_kept() -> None:
    # By Java: "hello".hashCode(), and the string whose hash is the least number.
    assert kafka_cluster.java_hash("hello") == 99_162_322
    assert kafka_cluster.java_hash("polygenelubricants") == -(1 << 31)
    leaders = [redis_cluster.leader_of(redis_cluster.stream_of(qid)) for qid in range(4)]
    assert leaders == [0, 1, 0, 2]
    assert redis_cluster.ordinal_of(redis_cluster.id_of(41).encode()) == 41


def test_a_wrong_engine_or_setting_is_one_sentence_that_names_the_others() -> None:
    for engine in SETTINGS:
        names = [each.name for each in settings_of(engine)]
        assert [each.name for name in names for each in settings_of(engine, name)] == names
        with pytest.raises(ConfigError, match=f"--setting: must be {' or '.join(names)}"):
            settings_of(engine, "nothing")
    with pytest.raises(ConfigError, match='ENGINE: must be kafka or redis, got "pulsar"'):
        settings_of("pulsar")
