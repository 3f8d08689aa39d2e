"""A Redis Cluster of three masters with a replica each, as processes of this host.

Group state is in a stream's key, so its master keeps it; a replica copies it without being waited
for. The victim is the first master; it leads two of the four streams.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from redis import Redis
from redis.cluster import ClusterNode
from redis.cluster import RedisCluster as Client
from redis.crc import key_slot
from redis.exceptions import RedisError

from failback.chaos.compare.rows import Rows
from failback.chaos.compare.servers import HOST, Server, free_ports
from failback.chaos.compare.settings import QUEUES, TOPIC, Setting
from failback.chaos.errors import TargetError
from failback.common.maven import cache_folder, locked
from failback.protocol.errors import ConfigError

NODE_TIMEOUT_MS: Final = 3000
_PACKAGES: Final = ("redis-tools", "liblzf1", "libjemalloc2")
"""Debian's packages with the server: ``redis-check-rdb`` is the same program."""
_SLOTS: Final = 16384
_MASTERS: Final = 3
_LEADERS: Final = (0, 1, 0, 2)
"""The master that leads each stream; the first one is the victim."""
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
_Refused = (RedisError, OSError)


def ensure_redis(log: Callable[[str], None] = lambda line: None) -> tuple[str, dict[str, str]]:
    """Return Redis' server and what its environment needs: the one on PATH, else Debian's.

    Raises:
        ConfigError: There is none, and none can be unpacked: says what to install.
    """
    found = shutil.which("redis-server")
    if found is not None:
        return found, {}
    folder = cache_folder() / "redis"
    server = folder / "usr" / "bin" / "redis-check-rdb"
    with locked(cache_folder() / "redis.lock"):
        if not server.exists():
            log(f"fetching Debian's redis-server into {folder}")
            _unpack(folder)
    name = folder / "redis-server"
    if not name.exists():
        name.symlink_to(server)  # by its name it knows that it is to serve
    libraries = next((each.parent for each in folder.rglob("liblzf.so*")), folder)
    return str(name), {"LD_LIBRARY_PATH": str(libraries)}


def _unpack(folder: Path) -> None:
    half = folder.with_name(f".{folder.name}.half")
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(parents=True)
    commands: list[list[str]] = [["apt-get", "download", *_PACKAGES]]
    try:
        _run(commands[0], half)
        for package in half.glob("*.deb"):
            _run(["dpkg", "-x", package.name, "."], half)
    except (OSError, subprocess.SubprocessError) as error:
        needed = "there is no redis-server here; install it: apt-get install redis-server"
        raise ConfigError("redis", needed) from error
    half.rename(folder)


def _run(command: Sequence[str], folder: Path) -> None:
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=300)


class RedisCluster:
    """Three masters, numbers 1 to 3, and their replicas, 4 to 6."""

    version = ""

    def __init__(self, setting: Setting, folder: Path, tell: Callable[[str], None]) -> None:
        program, environment = ensure_redis(tell)
        command, environ = [program, "--version"], {**os.environ, **environment}
        said = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
        self.version = said.stdout.partition("v=")[2].partition(" ")[0] or "of an unknown version"
        self._setting, self._folder = setting, folder
        self.nodes = [
            self._node(number, port, program, environment)
            for number, port in enumerate(free_ports(2 * _MASTERS), 1)
        ]
        self.servers = ",".join(each.address for each in self.nodes)
        self._queues = {qid: stream_of(qid) for qid in range(QUEUES)}

    def _node(self, number: int, port: int, program: str, environment: dict[str, str]) -> Server:
        name = f"redis-{number}"
        conf = self._folder / f"{name}.conf"
        lines = _CONF.format(
            port=port, host=HOST, folder=self._folder, name=name, timeout=NODE_TIMEOUT_MS
        )
        conf.write_text(lines)
        log = self._folder / f"{name}.log"
        return Server(name, number, port, [program, str(conf)], log, environment)

    @property
    def victim(self) -> Server:
        return self.nodes[0]

    def queues(self) -> Mapping[int, str]:
        """The key of each stream."""
        return self._queues

    def start(self) -> None:
        """Start all nodes and make the cluster of them.

        Raises:
            TargetError: It does not come up.
        """
        for node in self.nodes:
            node.start()
        self._wait("servers", lambda: all(self._ask(each, "PING") for each in self.nodes))
        for place, node in enumerate(self.nodes[:_MASTERS]):
            first, last = _range_of(place)
            self._ask(node, "CLUSTER ADDSLOTSRANGE", first, last)
            self._ask(node, "CLUSTER SET-CONFIG-EPOCH", place + 1)
        for node in self.nodes[1:]:
            self._ask(self.nodes[0], "CLUSTER MEET", HOST, node.port)
        self._wait("the cluster's members", lambda: all(map(self._knows_all, self.nodes)))
        for place, node in enumerate(self.nodes[_MASTERS:]):
            master = self._ask(self.nodes[place], "CLUSTER MYID")
            self._wait(
                f"{node.name} as a replica",
                lambda node=node, master=master: self._ask(node, "CLUSTER REPLICATE", master),  # type: ignore[misc]
            )
        self._wait("the cluster", self.serves)

    def group_name(self, label: str, on_victim: bool) -> str:
        """A group's state is with each stream, so any name does."""
        return label

    def before_kill(self, tell: Callable[[str], None]) -> None:
        """Cut the victim's replica off, where the setting says so: it cannot log in again."""
        if not self._setting.cut_seconds:
            return
        tell(f"the replica of {self.victim.name} gets nothing for {self._setting.cut_seconds:g} s")
        replica = self.nodes[_MASTERS]
        self._ask(replica, "CONFIG SET", "masterauth", "bogus")
        self._ask(self.victim, "CLIENT KILL", "TYPE", "replica")
        time.sleep(self._setting.cut_seconds)
        if self._ask(replica, "INFO", "replication").get("master_link_status") != "down":
            raise TargetError(replica.name, "its link to the master is not down")

    def serves(self) -> bool:
        """Whether each node sees a whole cluster, and each replica has its master."""
        return all(map(self._is_in_order, self.nodes))

    def ends(self) -> dict[int, int]:
        """The ordinal that follows the last entry of each stream."""
        client = self._client()
        try:
            return {
                qid: ordinal_of(client.xinfo_stream(name)["last-generated-id"]) + 1
                for qid, name in self._queues.items()
            }
        except _Refused as error:
            raise TargetError("the ends of the streams", str(error)) from error
        finally:
            client.close()

    def is_drained(self, group: str) -> bool:
        """Whether nothing is pending in any stream of a group."""
        client = self._client()
        try:
            found = [client.xinfo_groups(name) for name in self._queues.values()]
        except _Refused:
            return False
        finally:
            client.close()
        return all(not each["pending"] for groups in found for each in groups if _is(each, group))

    def scan(self, rows: Rows, ends: Mapping[int, int]) -> bool:
        """Write a row of each entry; false if some stream could not be read."""
        client = self._client()
        try:
            for qid, name in self._queues.items():
                for entry, fields in client.xrange(name):
                    rows.scan(qid, ordinal_of(entry), fields[b"m"], 0)
        except _Refused:
            return False
        finally:
            client.close()
        return True

    def end(self) -> None:
        for node in self.nodes:
            node.end()

    def _client(self) -> Client:
        return client_of(self.servers)

    def _ask(self, node: Server, *words: Any) -> Any:
        """The answer of one node, as redis-py reads it; ``None`` where it gives none."""
        connection = Redis(HOST, node.port, socket_timeout=3.0, decode_responses=True)
        try:
            return connection.execute_command(*words)
        except _Refused:
            return None
        finally:
            connection.close()

    def _knows_all(self, node: Server) -> bool:
        found = self._ask(node, "CLUSTER INFO")
        return found is not None and int(found["cluster_known_nodes"]) == len(self.nodes)

    def _is_in_order(self, node: Server) -> bool:
        cluster = self._ask(node, "CLUSTER INFO")
        replication = self._ask(node, "INFO", "replication")
        if cluster is None or replication is None or cluster["cluster_state"] != "ok":
            return False
        if replication["role"] == "slave":
            return bool(replication["master_link_status"] == "up")
        return int(replication["connected_slaves"]) == 1

    def _wait(self, what: str, ready: Callable[[], object]) -> None:
        deadline = time.monotonic() + _SERVE_SECONDS
        while not ready():
            dead = next((each for each in self.nodes if not each.is_alive()), None)
            if dead is not None:
                raise TargetError(f"{dead.name} ended with status {dead.status}", dead.last_words())
            if time.monotonic() > deadline:
                raise TargetError(what, f"not there after {_SERVE_SECONDS:g} s")
            time.sleep(0.2)


def client_of(servers: str, **further: Any) -> Client:
    """A client of the whole cluster. Raises ``RedisError`` when no node answers."""
    nodes = [
        ClusterNode(host, int(port))
        for host, _, port in (each.partition(":") for each in servers.split(","))
    ]
    return Client(startup_nodes=nodes, socket_timeout=2.0, require_full_coverage=False, **further)


def ordinal_of(entry: bytes | str) -> int:
    """The ordinal of an entry: its producer counts ids from ``1-0``, so that they are dense."""
    text = entry.decode() if isinstance(entry, bytes) else entry
    return int(text.partition("-")[0]) - 1


def id_of(ordinal: int) -> str:
    """The id of an entry."""
    return f"{ordinal + 1}-0"


def _is(group: Mapping[str, Any], name: str) -> bool:
    return bool(group["name"] == name.encode())


def _range_of(place: int) -> tuple[int, int]:
    """The slots of a master."""
    return place * _SLOTS // _MASTERS, (place + 1) * _SLOTS // _MASTERS - 1


def leader_of(key: str) -> int:
    """The place of the master that has a key's slot."""
    slot = key_slot(key.encode())
    return next(place for place in range(_MASTERS) if slot <= _range_of(place)[1])


def stream_of(qid: int) -> str:
    """A key in a slot of the master that has to lead the stream."""
    return next(name for name in _names(qid) if leader_of(name) == _LEADERS[qid])


def _names(qid: int) -> Iterator[str]:
    number = 0
    while True:
        yield f"{TOPIC}-{qid}-{number}"
        number += 1
