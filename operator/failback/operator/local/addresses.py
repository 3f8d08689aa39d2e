"""Addresses and ports of local pods.

Every pod has its own loopback address, a function of its name. Apache 4.9 listens on all
addresses, so each StatefulSet also has its own block of ten ports. Blocks are remembered in
the root and in one registry per user, so that runtimes on other roots choose others.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import psutil

from failback.common.files import own_folder, state_folder
from failback.operator.local.root import Root, read_json, write_json
from failback.operator.render.context import Context
from failback.protocol.errors import ConfigError

ANY: Final = "0.0.0.0"
BLOCK: Final = 10
_FIRST: Final = 20_000  # below Linux's ephemeral ports, which begin at 32768
_LOCK_SECONDS: Final = 10.0
_BLOCKS: Final = 1_200
_OFFSETS: Final = {"remoting": 2, "http": 5}  # fast = base, remoting + 1 = HA
LISTENING_OFFSETS: Final = (0, 2, 3, 5)


def loopback_address(namespace: str, pod: str) -> str:
    """Return the address of a pod: the same on every machine where all of 127/8 is up."""
    if sys.platform != "linux":
        return "127.0.0.1"
    digest = hashlib.sha256(f"{namespace}/{pod}".encode()).digest()
    return f"127.{64 + digest[0] % 64}.{digest[1]}.{1 + digest[2] % 254}"


def local_context(
    namespace: str,
    root: Root,
    ports: dict[str, int],
    version: str,
    address_of: Callable[[str], str] | None = None,
) -> Context:
    """Return the context that renders objects for this machine.

    Args:
        ports: The first port of each StatefulSet's block, from :func:`allocate`.
        address_of: The address of a pod; ``None``: :func:`loopback_address`.
    """
    address_of = address_of or partial(loopback_address, namespace)
    return Context(
        namespace=namespace,
        home=lambda pod: str(root.home(pod)),
        run_dir=lambda pod: str(root.run_dir(pod)),
        address_of=lambda pod, service: address_of(pod),
        port_of=lambda statefulset, name, default: ports[statefulset] + _OFFSETS[name],
        version=version,
    )


def check_addresses(namespace: str, pods: Iterable[str]) -> None:
    """Refuse two pods of one root with the same address.

    Raises:
        ConfigError: Names both.
    """
    owners: dict[str, str] = {}
    for pod in pods if sys.platform == "linux" else ():
        address = loopback_address(namespace, pod)
        other = owners.setdefault(address, pod)
        if other != pod:
            problem = f"{other} and {pod} get the same address {address}: rename one of the two"
            raise ConfigError("local", problem)


def allocate(root: Root, statefulsets: Iterable[str]) -> dict[str, int]:
    """Return the first port of each StatefulSet's block: remembered, or new and free now."""
    names = list(statefulsets)
    remembered: dict[str, int] = read_json(root.ports_file) or {}
    with _registry() as registry:
        _forget_removed_roots(registry)
        candidates = _candidates(root)
        for name in names:
            if name not in remembered:
                remembered[name] = next(
                    base
                    for base in candidates
                    if str(base) not in registry and _block_is_free(base)
                )
            registry[str(remembered[name])] = str(root.path)
        write_json(root.ports_file, remembered)
    return {name: remembered[name] for name in names}


def check_blocks(blocks: dict[str, int]) -> None:
    """Raise :class:`ConfigError` when another process took a port of a remembered block."""
    for base in blocks.values():
        check_free(base + offset for offset in LISTENING_OFFSETS)


def check_free(ports: Iterable[int], address: str = ANY) -> None:
    """Raise :class:`ConfigError` naming the first port that is listened on, and by whom.

    Args:
        ports: Which are to be free.
        address: Where; pods of one StatefulSet share their ports, each at its own address.
    """
    for port in ports:
        if not _can_listen(port, address):
            raise ConfigError(f"port {port}", f"is already taken: {holder(port, address)}")


def holder(port: int, address: str = ANY) -> str:
    """Return which program listens on a port: ``127.0.0.1:80, pid 7 (nginx: master)``."""
    for connection in psutil.net_connections("tcp"):
        if connection.status != psutil.CONN_LISTEN or not connection.laddr:
            continue
        if connection.laddr.port != port:
            continue
        if address != ANY and connection.laddr.ip not in (address, ANY, "::"):
            continue
        address = f"{connection.laddr.ip}:{port}"
        if connection.pid is None:
            return f"{address}, a process of another user"
        try:
            command = " ".join(psutil.Process(connection.pid).cmdline())[:120]
        except psutil.Error:
            command = "?"
        return f"{address}, pid {connection.pid} ({command})"
    return f"0.0.0.0:{port}, a process that is not visible"


def _can_listen(port: int, address: str = ANY) -> bool:
    with socket.socket() as probe:
        # As servers bind: connections of a former process in TIME_WAIT do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
        return True


def _block_is_free(base: int) -> bool:
    return all(_can_listen(port) for port in range(base, base + BLOCK))


def _candidates(root: Root) -> Iterator[int]:
    """Yield bases in an order of the root's own, so that two roots rarely meet."""
    start = int.from_bytes(hashlib.sha256(str(root.path).encode()).digest()[:4], "big")
    for step in range(_BLOCKS):
        yield _FIRST + (start + step) % _BLOCKS * BLOCK
    raise ConfigError("local", f"no block of {BLOCK} free ports from {_FIRST} on")


@contextmanager
def _registry() -> Iterator[dict[str, str]]:
    """Lock the user's table of port blocks: base → root."""
    folder = Path(tempfile.gettempdir()) / f"failback-{os.getuid()}"
    try:
        own_folder(folder)
    except OSError:  # another account took the name in the shared folder
        folder = state_folder() / "ports"
        own_folder(folder)
    file = folder / "ports.json"
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(folder / "ports.lock", flags, 0o600)
    try:
        _lock(descriptor, folder)
        try:
            table = read_json(file) or {}
        except ValueError:  # a torn file is no table; the ports are probed below anyway
            table = {}
        yield table
        write_json(file, table)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> None:
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                where = f"{folder}/ports.lock is held by another process; see: fuser {folder}"
                raise ConfigError("local", where) from None
            time.sleep(0.05)


def _forget_removed_roots(registry: dict[str, str]) -> None:
    for base, path in list(registry.items()):
        try:
            kept = read_json(Root(path).ports_file) or {}
        except (OSError, ValueError):
            kept = {}
        if int(base) not in kept.values():
            del registry[base]
