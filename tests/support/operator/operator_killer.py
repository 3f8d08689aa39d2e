"""Kills an operator with SIGKILL after writes to the API server and orders to brokers."""

from __future__ import annotations

import os
import random
import socket
import sys
import threading
from collections import Counter
from dataclasses import dataclass

from tests.support.kube_lab.namespaces import Identity, Namespace
from tests.support.kube_lab.proxy import MisbehavingProxy, Write
from tests.support.operator.operator_process import OperatorProcess
from tests.support.operator.scripted_clusters import Life
from tests.support.processes.child_process import ROOT, failback_environment


@dataclass(frozen=True, slots=True)
class Kill:
    """The operator died here."""

    cluster: str
    """Empty for the name server's objects, and for what is created under a name of the body."""
    change: str
    index: int
    """Of the write or order within the change, from 1."""
    what: str
    """``patch statefulsets/orders-0-0`` or ``order 25``."""


def witnessed_operator(
    namespace: Namespace,
    identity: Identity,
    wait_scale: float,
    port: int = 0,
    **variables: str,
) -> OperatorProcess:
    """Return an operator whose long waits are scaled, with a witness at a port or without."""
    program = "tests.support.operator.witnessed_operator"
    return OperatorProcess(
        namespace,
        identity,
        [sys.executable, "-m", program, f"{port}", f"{wait_scale}", "operator", "run"],
        PYTHONPATH=os.pathsep.join([str(ROOT), failback_environment()["PYTHONPATH"]]),
        **variables,
    )


class OperatorKiller:
    """Decides by a seed after which writes and orders of each change the operator dies.

    The first order of each change kills in any case: there are few of them.

    Args:
        share: Of the writes and orders after which it is killed; 1 is every one.
        most: Kills per change, that one left out.
    """

    def __init__(
        self, life: Life, proxy: MisbehavingProxy, *, seed: int, share: float, most: int
    ) -> None:
        self.kills: list[Kill] = []
        self.counted: Counter[tuple[str, str]] = Counter()
        """Cluster and change → writes and orders so far."""
        self._killed: Counter[tuple[str, str]] = Counter()
        self._ordered: set[tuple[str, str]] = set()
        self._closed = False
        self._life, self._share, self._most, self._seed = life, share, most, seed
        self._lock = threading.Lock()
        self._victim: OperatorProcess | None = None
        self._dead = False
        """Killed by us, and not started again yet."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._proxy = proxy
        proxy.after_write = self._wrote
        threading.Thread(target=self._witness, name="witness", daemon=True).start()

    def operator(
        self, namespace: Namespace, identity: Identity, wait_scale: float
    ) -> OperatorProcess:
        """Return the operator to be killed, with its witness."""
        port = self._listener.getsockname()[1]
        self._victim = witnessed_operator(namespace, identity, wait_scale, port)
        return self._victim

    def revive(self) -> None:
        """Start the operator again if it was killed."""
        with self._lock:
            assert self._victim is not None
            if self._victim.process.alive:
                return
            assert self._dead, self._victim.process.errors()[-4000:]
            self._dead = False
            self._victim.start()

    def close(self) -> None:
        """Kill nobody any more."""
        self._proxy.after_write = None
        self._closed = True
        self._listener.close()

    # --- what is heard ------------------------------------------------------------------------

    def _wrote(self, write: Write) -> None:
        found = (cluster for cluster in self._life.scripts if cluster in write.name)
        self._heard(next(found, ""), f"{write.verb} {write.resource}/{write.name}")

    def _witness(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._listen, args=(connection,), daemon=True).start()

    def _listen(self, connection: socket.socket) -> None:
        with connection, connection.makefile("r") as lines:
            try:
                for line in lines:
                    code, address, _ = line.split()
                    cluster = self._life.clusters_of.get(address.partition(":")[0], "")
                    self._heard(cluster, f"order {code}", order=True)
                    connection.sendall(b"+")
            except OSError:
                return  # the operator is dead

    def _heard(self, cluster: str, what: str, *, order: bool = False) -> None:
        with self._lock:
            change = self._life.change_of(cluster)
            key = (cluster, change)
            self.counted[key] += 1
            index = self.counted[key]
            first = order and key not in self._ordered
            if not (first or self._is_fatal(key, index)) or self._closed:
                return
            if self._victim is None or not self._victim.process.alive:
                return
            self._victim.process.kill()
            self._dead = True
            if first:
                self._ordered.add(key)
            else:
                self._killed[key] += 1
            self.kills.append(Kill(cluster, change, index, what))

    def _is_fatal(self, key: tuple[str, str], index: int) -> bool:
        if self._killed[key] >= self._most:
            return False
        drawn = random.Random(f"{self._seed} {key} {index}").random()
        return drawn < self._share
