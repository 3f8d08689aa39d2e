"""A running ``failback exporter``."""

from __future__ import annotations

import urllib.request
from pathlib import Path

from tests.support.common.polling import SCALE, wait_until
from tests.support.net.ports import free_port
from tests.support.processes.child_process import (
    TestProcess,
    failback_command,
    failback_environment,
)


class Exporter:
    """A running exporter of a name server."""

    def __init__(self, folder: Path, namesrv: str) -> None:
        self.port = free_port()
        arguments = ["exporter", "-n", namesrv, "--port", str(self.port), "--interval", "0.2"]
        self.process = TestProcess(
            "exporter",
            failback_command("cli", *arguments),
            folder / "exporter",
            environment=failback_environment(),
        )
        self.process.start()
        self.process.wait_for("exporter on")

    def lines(self) -> list[str]:
        """Every sample, as it is served."""
        address = f"http://127.0.0.1:{self.port}/metrics"
        with urllib.request.urlopen(address, timeout=30 * SCALE) as answer:
            lines: list[str] = answer.read().decode().splitlines()
        return [line for line in lines if not line.startswith("#")]

    def values(self, name: str) -> list[float]:
        return [
            float(line.rpartition(" ")[2])
            for line in self.lines()
            if line.startswith((f"{name} ", f"{name}{{"))
        ]

    def wait(self, name: str, wanted: list[float]) -> None:
        wait_until(lambda: self.values(name) == wanted, f"{name} {wanted}", 60)
