"""Apache RocketMQ 4.9.7 servers and mqadmin, and our programs on the 4.9.8 client.

Everything is fetched by tools/setup_java.py. Flags as Java 17 needs them: without the opens a
broker boots and serves, but a clean stop fails, leaves ``abort`` and loses the last offsets.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

import pytest
from tools.setup import SetupError
from tools.setup_go import ensure_go_member
from tools.setup_java import SERVER_VERSION, cache_folder, ensure_client, ensure_servers

from tests.support.common.polling import SCALE
from tests.support.net.ports import free_port_block
from tests.support.processes.child_process import (
    TestProcess,
    failback_command,
    failback_environment,
)

Engine = Literal["failback", "apache"]
Made = TypeVar("Made")

_OPENS = (
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
)
_MQADMIN_TRIES = 3
FRUGAL = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")  # never for measurements
QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
LOG_FILE_BYTES = 16 << 20


def java() -> str:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"


@functools.cache
def server_home(version: str = SERVER_VERSION) -> Path:
    """Return the folder of the Apache servers; skip the test where they can't be had."""
    return _or_skip(functools.partial(ensure_servers, version))


@functools.cache
def client_folders() -> tuple[Path, Path]:
    """Return the folders of the client's jars and of our programs; skip where they can't be had."""
    return _or_skip(ensure_client)


def _or_skip(ensure: Callable[[], Made]) -> Made:
    if shutil.which(java()) is None:
        pytest.skip("needs Java 17")
    try:
        return ensure()
    except SetupError as error:
        pytest.skip(str(error))


@functools.cache
def archives(version: str = SERVER_VERSION) -> Path:
    """Return the folder of the archives of classes that JVMs load, see class_archives.py."""
    command = Path(os.path.realpath(shutil.which(java()) or ""))
    _, classes = client_folders()
    made_from = f"{command} {command.stat().st_mtime_ns} {server_home(version)} {classes}"
    return cache_folder() / f"class-archives-{hashlib.sha256(made_from.encode()).hexdigest()[:12]}"


def frugal(program: str, version: str = SERVER_VERSION) -> tuple[str, ...]:
    """Return flags of a JVM that takes little, with its archive of classes where there is one."""
    file = archives(version) / f"{program}.jsa"
    archive = (f"-XX:SharedArchiveFile={file}", *QUIET) if file.is_file() else ()
    return (*FRUGAL, *archive)


@dataclass
class NameServer:
    """A name server of either engine on its own port of 127.0.0.1."""

    engine: Engine
    folder: Path
    port: int = 0
    java_flags: tuple[str, ...] = ()
    """By default those of a small JVM."""
    home: Path | None = None
    version: str = SERVER_VERSION
    process: TestProcess = field(init=False)

    def __post_init__(self) -> None:
        self.port = self.port or free_port_block(1)
        self.folder.mkdir(parents=True, exist_ok=True)
        conf = self.folder / "namesrv.conf"
        lines = [f"listenPort={self.port}", f"kvConfigPath={self.folder}/kvConfig.json"]
        if self.engine == "failback":
            lines += ["bindAddress=127.0.0.1"]
            command = failback_command("namesrv", "-c", str(conf))
        else:
            flags = self.java_flags or ("-Xms64m", "-Xmx256m", *frugal("namesrv", self.version))
            command = [java(), *flags, *_homes(self.folder, self.home)]
            command += ["-cp", f"{server_home(self.version)}/lib/*"]
            command += ["org.apache.rocketmq.namesrv.NamesrvStartup", "-c", str(conf)]
        conf.write_text("\n".join(lines) + "\n")
        self.process = TestProcess(
            "namesrv", command, self.folder, environment=failback_environment()
        )

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        self.process.start()
        self.process.wait_for("boot success")


@dataclass
class Broker:
    """A broker of either engine; ``engine`` may be changed between two starts.

    It takes ports ``port`` - 2 … ``port`` + 1. ``settings`` are more lines of broker.conf;
    ``launcher`` starts one of ours.
    """

    engine: Engine
    folder: Path
    namesrv: str
    name: str = "broker-a"
    broker_id: int = 0
    role: str = "ASYNC_MASTER"
    ip: str = "127.0.0.1"
    port: int = 0
    settings: dict[str, object] = field(default_factory=dict)
    java_flags: tuple[str, ...] = ()
    """By default those of a small JVM."""
    home: Path | None = None
    """``rocketmq.home.dir`` with ``conf`` of its own; ``None``: that of all."""
    version: str = SERVER_VERSION
    """Of one of Apache's."""
    launcher: list[str] = field(default_factory=lambda: failback_command("broker"))
    process: TestProcess = field(init=False)

    def __post_init__(self) -> None:
        # Apache's listen on all addresses: no two brokers may share a port number.
        self.port = self.port or free_port_block(5) + 2
        self.process = TestProcess("broker", [], self.folder)

    @property
    def address(self) -> str:
        return f"{self.ip}:{self.port}"

    @property
    def store(self) -> Path:
        return self.folder / "store"

    def conf(self) -> str:
        """Return the text of broker.conf."""
        settings: dict[str, object] = {
            "brokerClusterName": "bench",
            "brokerName": self.name,
            "brokerId": self.broker_id,
            "brokerRole": self.role,
            "flushDiskType": "ASYNC_FLUSH",
            "namesrvAddr": self.namesrv,
            "brokerIP1": self.ip,
            "brokerIP2": self.ip,
            "listenPort": self.port,
            "storePathRootDir": self.store,
            "storePathCommitLog": self.store / "commitlog",
            "mappedFileSizeCommitLog": LOG_FILE_BYTES,
            "slaveReadEnable": "true",
            "failbackHttpPort": 0,
        }
        return "".join(f"{key}={value}\n" for key, value in (settings | self.settings).items())

    def start(self) -> None:
        """Write broker.conf, start, return when the broker serves."""
        self.folder.mkdir(parents=True, exist_ok=True)
        conf = self.folder / "broker.conf"
        conf.write_text(self.conf())
        if self.engine == "failback":
            command = [*self.launcher, "-c", str(conf)]
        else:
            flags = self.java_flags or ("-Xms256m", "-Xmx512m", *frugal("broker", self.version))
            command = [java(), *flags, *_OPENS, *_homes(self.folder, self.home)]
            command += ["-cp", f"{server_home(self.version)}/lib/*"]
            command += ["org.apache.rocketmq.broker.BrokerStartup", "-c", str(conf)]
        self.process = TestProcess(
            "broker", command, self.folder, environment=failback_environment()
        )
        self.process.start()
        self.process.wait_for("boot success")

    def kill(self) -> None:
        self.process.kill()

    def stop(self) -> int:
        return self.process.stop()


def _homes(folder: Path, home: Path | None = None) -> list[str]:
    return [f"-Drocketmq.home.dir={home or server_home() / 'home'}", f"-Duser.home={folder}"]


@dataclass(frozen=True)
class Answer:
    """What an mqadmin command printed."""

    out: str
    err: str

    @property
    def rows(self) -> list[list[str]]:
        """The words of each line that is not a heading."""
        return [line.split() for line in self.out.splitlines() if line and line[0] != "#"]


def mqadmin(
    folder: Path, *arguments: str, java_flags: tuple[str, ...] = (), home: Path | None = None
) -> Answer:
    """Run one mqadmin command; a failure inside it is an error, which its exit code hides."""
    folder.mkdir(parents=True, exist_ok=True)
    flags = java_flags or frugal("mqadmin")
    command = [java(), "-Xms64m", "-Xmx256m", *flags, *_homes(folder, home)]
    command += ["-cp", f"{server_home()}/lib/*"]
    command += ["org.apache.rocketmq.tools.command.MQAdminStartup", *arguments]
    for _ in range(_MQADMIN_TRIES):
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=120 * SCALE, cwd=folder, check=False
        )
        # Its requests have 3 s from the moment the cold JVM began; on a busy machine that is short.
        if "RemotingTimeoutException" not in done.stdout + done.stderr:
            break
    answer = Answer(done.stdout, done.stderr)
    failed = "Exception" in done.stdout + done.stderr or done.returncode
    assert not failed, f"mqadmin {' '.join(arguments)}:\n{done.stdout}\n{done.stderr}"
    return answer


def java_program(
    folder: Path,
    program: str,
    *,
    properties: dict[str, str] | None = None,
    java_flags: tuple[str, ...] = (),
    **options: object,
) -> TestProcess:
    """Return one of tests/java/programs, not started; ``options`` become ``-name value``.

    One that signs runs with the libraries of the server: the client's lack Apache's ACL classes.
    """
    jars, classes = client_folders()
    flags = java_flags or (frugal(program) if "accessKey" not in options else FRUGAL)
    command = [java(), "-Xms32m", "-Xmx256m", *flags, f"-Duser.home={folder}"]
    command += ["-Drocketmq.client.logLevel=WARN"]
    command += [f"-D{key}={value}" for key, value in (properties or {}).items()]
    libraries = server_home() / "lib" if "accessKey" in options else jars
    command += ["-cp", f"{classes}/programs.jar:{libraries}/*", program]
    for name, value in options.items():
        command += [f"-{name}", str(value)]
    return TestProcess(program, command, folder)


@functools.cache
def _go_member_program() -> Path:
    return _or_skip(ensure_go_member)


def go_member(folder: Path, **options: object) -> TestProcess:
    """Return tests/go/member, not started; ``options`` become ``-name value``."""
    command = [str(_go_member_program())]
    for name, value in options.items():
        command += [f"-{name}", str(value)]
    return TestProcess("go-member", command, folder)


@dataclass(frozen=True)
class Sent:
    """A line of the producer: one acknowledged message."""

    number: int
    status: str
    broker: str
    queue_id: int
    queue_offset: int


@dataclass(frozen=True)
class Got:
    """A line of the consumer: one delivery."""

    number: int
    broker: str
    queue_id: int
    queue_offset: int
    reconsume_times: int


def sent_by(producer: TestProcess) -> list[Sent]:
    """Return the messages that were acknowledged so far."""
    words = [line.split() for line in producer.lines()]
    return [
        Sent(int(word[1]), word[2], word[3], int(word[4]), int(word[5]))
        for word in words
        if word[0] == "sent"
    ]


def failed_by(producer: TestProcess) -> list[str]:
    """Return the lines of sends that were not acknowledged."""
    return [line for line in producer.lines() if line.startswith("failed ")]


def got_by(consumer: TestProcess) -> list[Got]:
    """Return the deliveries so far."""
    words = [line.split() for line in consumer.lines()]
    return [
        Got(int(word[1]), word[2], int(word[3]), int(word[4]), int(word[5]))
        for word in words
        if word[0] == "got"
    ]
