"""A Redis Cluster of three masters with a replica each, as processes of this host.

A group's state is in its stream's key, so the key's master keeps it; a replica copies it without
being waited for. The victim is the first master; it leads two of the four streams.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from redis import Redis
from redis.cluster import ClusterNode
from redis.cluster import RedisCluster as Client
from redis.crc import key_slot
from redis.exceptions import RedisError

from failback.chaos.compare.rows import Rows
from failback.chaos.compare.servers import HOST, Server, await_servers, free_ports
from failback.chaos.compare.settings import FETCH, QUEUES, TOPIC, Setting
from failback.chaos.errors import TargetError
from failback.common.files import cache_folder
from failback.protocol.errors import ConfigError

NODE_TIMEOUT_MS: Final = 3000
_SLOTS: Final = 16384
_MASTERS: Final = 3
_LEADERS: Final = (0, 1, 0, 2)
"""The place of the master that leads each stream; the first one is the victim."""
_SERVE_SECONDS: Final = 60.0
_CONF: Final = """\
port {port}
bind {host}
dir {folder}
cluster-enabled yes
cluster-config-file {name}.nodes
cluster-node-timeout {timeout}
save ""
appendonly yes
appendfilename {name}.aof
appenddirname {name}-aof
"""
REFUSED: Final = (RedisError, OSError)


def find() -> str:
    """Return the redis-server on PATH, or the fetched one, or raise ``ConfigError``."""
    fetched = cache_folder() / "redis" / "redis-server"
    found = shutil.which("redis-server") or (str(fetched) if fetched.is_file() else None)
    if found is None:
        raise ConfigError("redis", f"there is no redis-server here; fetch it: {FETCH}")
    return found


class Cluster:
    """Three masters, numbers 1 to 3, and their replicas, 4 to 6."""

    def __init__(self, setting: Setting, folder: Path) -> None:
        program = find()
        asked = [program, "--version"]
        said = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
        self.version = said.partition("v=")[2].partition(" ")[0] or "unknown"
        self.queues = [stream_of(qid) for qid in range(QUEUES)]
        self._cut_seconds = setting.cut_seconds
        self.nodes: list[Server] = []
        for number, port in enumerate(free_ports(2 * _MASTERS), 1):
            name = f"redis-{number}"
            conf = folder / f"{name}.conf"
            conf.write_text(
                _CONF.format(
                    port=port, host=HOST, folder=folder, name=name, timeout=NODE_TIMEOUT_MS
                )
            )
            command = [program, str(conf)]
            self.nodes.append(Server(name, command, folder / f"{name}.log", number, port))
        self.victim, self._replica = self.nodes[0], self.nodes[_MASTERS]
        self.servers = ",".join(each.address for each in self.nodes)

    def start(self) -> None:
        """Start all nodes and make the cluster of them. Raises ``TargetError``."""
        masters, replicas = self.nodes[:_MASTERS], self.nodes[_MASTERS:]
        for node in self.nodes:
            node.start()
        self._await("the servers", lambda: all(_ask(each, "PING") for each in self.nodes))
        for place, node in enumerate(masters):
            _ask(node, "CLUSTER ADDSLOTSRANGE", *_range_of(place))
            _ask(node, "CLUSTER SET-CONFIG-EPOCH", place + 1)
        for node in self.nodes[1:]:
            _ask(self.nodes[0], "CLUSTER MEET", HOST, node.port)
        self._await("the members", lambda: all(map(self._knows_all, self.nodes)))
        for master, node in zip(masters, replicas, strict=True):
            ask = partial(_ask, node, "CLUSTER REPLICATE", _ask(master, "CLUSTER MYID"))
            self._await(node.name, ask)
        self._await("the cluster", self.serves)

    def _await(self, what: str, ready: Callable[[], object]) -> None:
        await_servers(what, self.nodes, ready, _SERVE_SECONDS)

    def group_name(self, label: str, on_victim: bool) -> str:
        """A group's state is with each stream, so any name does."""
        return label

    def before_kill(self, tell: Callable[[str], None]) -> None:
        """Cut the victim's replica off, where the setting says so: it cannot log in again."""
        if not self._cut_seconds:
            return
        tell(f"the replica of {self.victim.name} gets nothing for {self._cut_seconds:g} s")
        _ask(self._replica, "CONFIG SET", "masterauth", "bogus")
        _ask(self.victim, "CLIENT KILL", "TYPE", "replica")
        time.sleep(self._cut_seconds)
        if (_ask(self._replica, "INFO", "replication") or {}).get("master_link_status") != "down":
            raise TargetError(self._replica.name, "its link to the master is not down")

    def serves(self) -> bool:
        """Whether each node sees a whole cluster, and each replica has its master."""
        return all(map(_is_in_order, self.nodes))

    def ends(self) -> dict[int, int]:
        """The ordinal that follows the last entry of each stream. Raises ``TargetError``."""
        try:
            with contextlib.closing(client_of(self.servers)) as client:
                last = [client.xinfo_stream(name)["last-generated-id"] for name in self.queues]
        except REFUSED as error:
            raise TargetError("the ends of the streams", str(error)) from error
        return {qid: ordinal_of(each) + 1 for qid, each in enumerate(last)}

    def is_drained(self, group: str) -> bool:
        """Whether nothing is pending in any stream of a group."""
        try:
            with contextlib.closing(client_of(self.servers)) as client:
                found = [each for name in self.queues for each in client.xinfo_groups(name)]
        except REFUSED:
            return False
        return not any(each["pending"] for each in found if each["name"] == group.encode())

    def scan(self, rows: Rows, ends: Mapping[int, int]) -> bool:
        """Write a row of each entry; false if some stream could not be read."""
        try:
            with contextlib.closing(client_of(self.servers)) as client:
                for qid, name in enumerate(self.queues):
                    for entry, fields in client.xrange(name):
                        rows.scan(qid, ordinal_of(entry), fields[b"m"], 0)
        except REFUSED:
            return False
        return True

    def _knows_all(self, node: Server) -> bool:
        known = (_ask(node, "CLUSTER INFO") or {}).get("cluster_known_nodes", 0)
        return int(known) == len(self.nodes)


def client_of(servers: str, **further: Any) -> Client:
    """A client of the whole cluster. Raises one of ``REFUSED`` when no node answers."""
    addresses = [each.partition(":") for each in servers.split(",")]
    nodes = [ClusterNode(host, int(port)) for host, _, port in addresses]
    return Client(startup_nodes=nodes, socket_timeout=2.0, require_full_coverage=False, **further)


def ordinal_of(entry: bytes | str) -> int:
    """The ordinal of an entry: its producer counts ids from ``1-0``, so that they are dense."""
    text = entry.decode() if isinstance(entry, bytes) else entry
    return int(text.partition("-")[0]) - 1


def id_of(ordinal: int) -> str:
    """The id of an entry."""
    return f"{ordinal + 1}-0"


def leader_of(key: str) -> int:
    """The place of the master that has a key's slot."""
    slot = key_slot(key.encode())
    return next(place for place in range(_MASTERS) if slot <= _range_of(place)[1])


def stream_of(qid: int) -> str:
    """A key in a slot of the master that has to lead the stream."""
    names = (f"{TOPIC}-{qid}-{number}" for number in itertools.count())
    return next(name for name in names if leader_of(name) == _LEADERS[qid])


def _range_of(place: int) -> tuple[int, int]:
    """The first and the last slot of a master."""
    return place * _SLOTS // _MASTERS, (place + 1) * _SLOTS // _MASTERS - 1


def _ask(node: Server, *words: Any) -> Any:
    """The answer of one node, as redis-py reads it; ``None`` where it gives none."""
    connection = Redis(HOST, node.port, socket_timeout=3.0, decode_responses=True)
    try:
        return connection.execute_command(*words)
    except REFUSED:
        return None
    finally:
        connection.close()


def _is_in_order(node: Server) -> bool:
    cluster, replication = _ask(node, "CLUSTER INFO"), _ask(node, "INFO", "replication")
    if cluster is None or replication is None or cluster["cluster_state"] != "ok":
        return False
    if replication["role"] == "slave":
        return bool(replication["master_link_status"] == "up")
    return int(replication["connected_slaves"]) == 1
