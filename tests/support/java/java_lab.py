"""A cluster of either engine for one test, and Java programs on it."""

from __future__ import annotations

from pathlib import Path

from tools.setup_java import SERVER_VERSION

from failback.client.remoting.guarded.access import ClusterAccess
from tests.support.java.apache import Broker, Engine, NameServer, go_member, java_program
from tests.support.processes.child_process import TestProcess


class Lab:
    """Makes name servers, brokers and Java programs, each in a folder of its own."""

    def __init__(self, folder: Path, version: str = SERVER_VERSION) -> None:
        """``version`` is of Apache's servers."""
        self.folder = folder
        self.version = version
        self.access: ClusterAccess | None = None
        """How our client speaks to the cluster, if it is guarded."""
        self._nodes: list[NameServer | Broker] = []
        self._programs: list[TestProcess] = []

    def namesrv(self, engine: Engine = "failback") -> NameServer:
        """Return a running name server."""
        folder = self.folder / f"ns{len(self._nodes)}"
        node = NameServer(engine, folder, version=self.version)
        self._nodes.append(node)
        node.start()
        return node

    def broker(self, engine: Engine, namesrv: NameServer, **settings: object) -> Broker:
        """Return a broker, not started; ``settings`` are fields of :class:`Broker`."""
        folder = self.folder / f"broker{len(self._nodes)}"
        settings = {"version": self.version, **settings}
        node = Broker(engine, folder, namesrv.address, **settings)  # type: ignore[arg-type]
        self._nodes.append(node)
        return node

    def program(self, program: str, namesrv: NameServer, **options: object) -> TestProcess:
        """Return a running Java program of ours."""
        properties = options.pop("properties", None)
        process = java_program(
            self.folder / f"{program.lower()}{len(self._programs)}",
            program,
            properties=properties,  # type: ignore[arg-type]
            java_flags=(),
            namesrv=options.pop("address", namesrv.address),
            **options,
        )
        self._programs.append(process)
        process.start()
        return process

    def go_member(self, namesrv: NameServer, **options: object) -> TestProcess:
        """Return a running member on Apache's Go client."""
        folder = self.folder / f"go{len(self._programs)}"
        process = self.keep(go_member(folder, namesrv=namesrv.address, **options))
        process.start()
        return process

    def cluster_options(self, namesrv: NameServer) -> list[str]:
        """Return the options by which a command of ours finds the cluster."""
        return ["--namesrv", namesrv.address]

    def keep(self, process: TestProcess) -> TestProcess:
        """End a process with the lab, however the test ends."""
        self._programs.append(process)
        return process

    def dispose(self) -> None:
        for process in self._programs:
            process.dispose()
        for node in reversed(self._nodes):
            node.process.dispose()
