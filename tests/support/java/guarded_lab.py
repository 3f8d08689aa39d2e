"""A lab whose Apache brokers take only signed requests, over TLS, of who has a certificate."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

from failback.client.remoting.guarded.cluster import find_cluster
from tests.support.java.apache import Broker, Engine, NameServer
from tests.support.java.guarded_cluster import ADMIN, ADMIN_SECRET, GuardedCluster
from tests.support.java.java_lab import Lab
from tests.support.processes.child_process import (
    TestProcess,
    failback_command,
    failback_environment,
)


class GuardedLab(Lab):
    """Makes what a :class:`Lab` makes, guarded; there is one name server.

    A slave of Apache signs nothing, so it copies no table of its master's, only the log.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.guards = GuardedCluster(folder)
        given = replace(self.guards.given(), access_key_file=self.guards.keys.admin)
        self.access = find_cluster(given, {}).access

    def namesrv(self, engine: Engine = "apache") -> NameServer:
        node = self.guards.namesrv
        node.start()
        self._nodes.append(node)
        return node

    def broker(self, engine: Engine, namesrv: NameServer, **settings: object) -> Broker:
        return super().broker(
            engine,
            namesrv,
            java_flags=self.guards.flags,
            home=self.guards.home,
            settings={"aclEnable": "true", "waitTimeMillsInSendQueue": 30_000},
            **settings,
        )

    def program(self, program: str, namesrv: NameServer, **options: object) -> TestProcess:
        return super().program(
            program,
            namesrv,
            properties=self.guards.tls,
            accessKey=ADMIN,
            secretKey=ADMIN_SECRET,
            **options,
        )

    def command(self, namesrv: NameServer, *words: str) -> None:
        """Run a command of ours, with the admin's key."""
        command = failback_command("cli", *words, *self.cluster_options(namesrv))
        subprocess.run(command, env={**os.environ, **failback_environment()}, check=True)

    def cluster_options(self, namesrv: NameServer) -> list[str]:
        return self.guards.options(self.guards.keys.admin)
