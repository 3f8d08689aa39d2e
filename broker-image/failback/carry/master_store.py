"""What broker.conf says of a master, and which messages its disk has, read while it is stopped.

The commit log and the consume queues are mapped files, named by the position of their first byte
in 20 digits. A queue entry, number *n* at byte 20·n, is ``physical offset i64, size i32, tags code
i64``; a record begins with ``size i32, magic, crc i32, queue id i32, flag i32, queue offset i64``.
Source: MappedFileQueue, ConsumeQueue and CommitLog, apache/rocketmq 4.9.7 and 5.3.3.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from failback.client.remoting.addresses import addresses_of
from failback.client.remoting.guarded.own_access import OwnSettings
from failback.common.files import lock_first_byte, lock_owner
from failback.common.text import why
from failback.protocol.errors import ConfigError, StoreError
from failback.protocol.message import V1_MAGIC, V2_MAGIC
from failback.protocol.properties import properties_of

_ENTRY: Final = struct.Struct(">qiq")
_HEAD: Final = struct.Struct(">iI12xq")
_PRE_BLANK_SIZE: Final = 0x7FFFFFFF
"""Size of the entries before the first message of a queue that began in mid-log."""
_MOST_RECORD_BYTES: Final = 64 << 20
_NO_QUEUE: Final = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)


@dataclass(frozen=True, slots=True)
class MasterConf:
    """The settings of broker.conf that a carry needs."""

    file: Path
    root: Path
    """storePathRootDir."""
    logs: tuple[Path, ...]
    """storePathCommitLog: the folders of the commit log."""
    cluster: str
    name: str
    """brokerName."""
    name_servers: tuple[str, ...]
    address: str
    """Where the broker answers on its own host."""
    own: OwnSettings
    """How the broker asks others."""
    idle: str = ""
    """Why no carry is needed; empty if one may be."""
    unreadable: str = ""
    """Why the offsets are in no file that can be merged; empty if they are."""
    is_lmq: bool = False
    listed: tuple[str, str] = ("0", "")
    """brokerId, and brokerIP1 with the port: what name servers list; empty without a brokerIP1."""

    @property
    def offset_file(self) -> Path:
        """Where the broker keeps the table of consumer offsets."""
        name = "lmqConsumerOffset.json" if self.is_lmq else "consumerOffset.json"
        return self.root / "config" / name


def read_conf(file: Path, store: Path | None = None) -> MasterConf:
    """Read broker.conf.

    Args:
        store: In the place of ``storePathRootDir`` and of the commit log below it.

    Raises:
        ConfigError: The file cannot be read, or names an address that is none.
    """
    try:
        values = properties_of(file.read_bytes(), file).values
    except OSError as error:
        raise ConfigError("--conf", f"{file} cannot be read: {why(error)}") from None
    said = {key: value.strip() for key, value in values.items() if value.strip()}
    root = store or Path(said.get("storePathRootDir") or Path.home() / "store")
    logs = () if store else tuple(filter(None, said.get("storePathCommitLog", "").split(",")))
    return MasterConf(
        file,
        root,
        tuple(Path(each.strip()) for each in logs) or _default_logs(root, store),
        said.get("brokerClusterName", "DefaultCluster"),
        said.get("brokerName") or socket.gethostname(),
        addresses_of("namesrvAddr", said.get("namesrvAddr", ""), file=file),
        _address(said),
        OwnSettings.of(said, file),
        _idle(said),
        _unreadable(said),
        _is_on(said, "enableLmq"),
        (said.get("brokerId", "0"), _announced(said)),
    )


def _default_logs(root: Path, store: Path | None) -> tuple[Path, ...]:
    # Before 4.9.4 a broker without storePathCommitLog has its log in the home folder.
    below, old = root / "commitlog", Path.home() / "store" / "commitlog"
    return (old if store is None and old.is_dir() and not below.is_dir() else below,)


def _address(said: Mapping[str, str]) -> str:
    bound = said.get("bindAddress", "0.0.0.0")
    return f"{'127.0.0.1' if bound == '0.0.0.0' else bound}:{said.get('listenPort', 10911)}"


def _announced(said: Mapping[str, str]) -> str:
    return f"{said['brokerIP1']}:{said.get('listenPort', 10911)}" if "brokerIP1" in said else ""


def _idle(said: Mapping[str, str]) -> str:
    if said.get("brokerRole", "").upper() == "SLAVE":
        return "this broker is a slave"
    for key in ("enableControllerMode", "enableDLegerCommitLog"):
        if _is_on(said, key):
            return f"{key} is on: an elected master has the offsets that it copied"
    return ""


def _unreadable(said: Mapping[str, str]) -> str:
    kind = said.get("storeType", "default")
    if kind.lower() != "default":
        return f"storeType={kind} keeps offsets in RocksDB; use --online after the start"
    if said.get("configManagerVersion", "v1").lower() == "v2":
        return "configManagerVersion=v2 keeps offsets in RocksDB; use --online after the start"
    return ""


def _is_on(said: Mapping[str, str], key: str) -> bool:
    return said.get(key, "").lower() == "true"


@contextlib.contextmanager
def locked(root: Path, *, only_look: bool = False) -> Iterator[None]:
    """Keep brokers from starting on a store while the block runs. No store: nothing to lock.

    Args:
        only_look: Take no lock, only see that no broker has it.

    Raises:
        StoreError: A broker runs on this store.
        OSError: The lock's file can't be used.
    """
    path = root / "lock"
    is_new = not path.exists()
    if not root.is_dir() or (only_look and is_new):
        yield
        return
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        if is_new:
            take_after(fd, root.stat())
        owner = lock_owner(fd) if only_look else lock_first_byte(fd)
        if owner:
            raise StoreError(f"{path} is held by {owner}: a broker runs on this store")
        yield
    finally:
        os.close(fd)


def take_after(descriptor: int, other: os.stat_result) -> None:
    """Give an open file the owner of another, where this process may: the broker has to open it."""
    with contextlib.suppress(PermissionError):
        os.fchown(descriptor, other.st_uid, other.st_gid)


class MappedFiles:
    """The mapped files of a log or a queue, in one folder or several."""

    def __init__(self, folders: Sequence[Path]) -> None:
        """Look which files there are; a folder that is missing has none."""
        found = {}
        for folder in folders:
            try:
                names = os.listdir(folder)
            except OSError as error:
                if error.errno not in _NO_QUEUE:
                    raise
                continue
            found.update({int(name): folder / name for name in names if _is_position(name)})
        self.starts = sorted(found)
        self._paths = found

    @property
    def end(self) -> int:
        """The position behind the last file; 0 without one."""
        return self.starts[-1] + self._paths[self.starts[-1]].stat().st_size if self.starts else 0

    def read(self, position: int, length: int) -> bytes:
        """Return the bytes of one file from ``position`` on; fewer, or none, beyond its end."""
        at = bisect_right(self.starts, position) - 1
        if at < 0:
            return b""
        start = self.starts[at]
        with self._paths[start].open("rb", buffering=0) as file:
            return os.pread(file.fileno(), length, position - start)


def _is_position(name: str) -> bool:
    return len(name) == 20 and name.isascii() and name.isdigit()


class MasterStore:
    """The messages that a stopped master's disk has. Methods raise ``OSError`` of the disk."""

    def __init__(self, conf: MasterConf) -> None:
        self._queues = conf.root / "consumequeue"
        self._log = MappedFiles(conf.logs)
        self._known: dict[tuple[str, int], MappedFiles] = {}

    @property
    def is_empty(self) -> bool:
        """Whether the commit log has no record."""
        starts = self._log.starts
        return not starts or not any(self._log.read(starts[0], _HEAD.size))

    def last_held(self, topic: str, queue_id: int, wanted: int) -> int:
        """Return the largest offset up to ``wanted`` with the message before it in the log.

        Messages that expired count as held: those before them have expired, too. -1 without a
        queue.
        """
        queue = self._queue(topic, queue_id)
        if not queue.starts:
            return -1
        low, high = queue.starts[0] // _ENTRY.size, min(wanted, queue.end // _ENTRY.size)
        if wanted <= low:
            return wanted
        if high == wanted and self._is_held(queue, wanted - 1):
            return wanted
        while low < high:  # held up to ``low``
            middle = (low + high + 1) // 2
            if self._is_held(queue, middle - 1):
                low = middle
            else:
                high = middle - 1
        return low

    def physical_offset_of(self, topic: str, queue_id: int, offset: int) -> int:
        """Return where message ``offset`` of a queue is in the log; -1 if it is not there."""
        queue = self._queue(topic, queue_id)
        if not self._is_held(queue, offset):
            return -1
        physical, size, _ = _ENTRY.unpack(queue.read(_ENTRY.size * offset, _ENTRY.size))
        return -1 if size == _PRE_BLANK_SIZE else int(physical)

    def record_at(self, physical_offset: int) -> bytes | None:
        """Return the record there; ``None`` without a whole one."""
        head = self._log.read(physical_offset, 4)
        size = int.from_bytes(head, "big")
        record = self._log.read(physical_offset, size) if size <= _MOST_RECORD_BYTES else b""
        return record if head and len(record) == size else None

    def _queue(self, topic: str, queue_id: int) -> MappedFiles:
        place = topic, queue_id
        if place not in self._known:
            is_name = topic not in ("", ".", "..") and not set(topic) & {"/", "\0"}
            folders = [self._queues / topic / str(queue_id)] if is_name else []
            self._known[place] = MappedFiles(folders)
        return self._known[place]

    def _is_held(self, queue: MappedFiles, number: int) -> bool:
        entry = queue.read(_ENTRY.size * number, _ENTRY.size)
        if len(entry) < _ENTRY.size:
            return False
        physical, size, _ = _ENTRY.unpack(entry)
        if physical < 0 or size <= 0 or not self._log.starts:
            return False
        if size == _PRE_BLANK_SIZE or physical < self._log.starts[0]:
            return True
        head = self._log.read(physical, _HEAD.size)
        if len(head) < _HEAD.size:
            return False
        stored_size, magic, queue_offset = _HEAD.unpack(head)
        return (stored_size, queue_offset) == (size, number) and magic in (V1_MAGIC, V2_MAGIC)
