"""Archives of loaded classes (class data sharing), with which the JVMs of tests start faster.

A JVM with its archive takes two thirds of the processor time to start. tools/setup_java.py makes
them, from a name server, a broker, a producer, a consumer and mqadmin that run once. A JVM of
another version, or with another class path, has no archive.
Source: https://docs.oracle.com/en/java/javase/17/vm/class-data-sharing.html
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.java import apache


def make_archives() -> None:
    """Run each program once and let it write its archive, unless the archives are there."""
    target = apache.archives()
    if target.is_dir():
        return
    half = Path(f"{target}.{os.getpid()}.half")
    half.mkdir(parents=True)
    with TemporaryDirectory() as scratch:
        _train(Path(scratch), half)
    try:
        half.rename(target)
    except OSError:  # another process was faster
        shutil.rmtree(half)


def _train(folder: Path, target: Path) -> None:
    def flags(program: str) -> tuple[str, ...]:
        return (
            *apache.FRUGAL,
            f"-XX:ArchiveClassesAtExit={target / program}.jsa",
            *apache.QUIET,
        )

    namesrv = apache.NameServer("apache", folder / "namesrv", java_flags=flags("namesrv"))
    broker = apache.Broker("apache", folder / "broker", "", java_flags=flags("broker"))
    broker.namesrv = namesrv.address
    started = []
    try:
        for node in (namesrv, broker):
            node.start()
            started.append(node.process)
        for program, options in (
            ("Producer", {"count": 4}),
            ("PushConsumer", {"group": "billing"}),
        ):
            client = apache.java_program(
                folder / program,
                program,
                java_flags=flags(program),
                namesrv=namesrv.address,
                topic="orders",
                **options,
            )
            client.start()
            started.append(client)
            client.wait_for("done" if program == "Producer" else "started")
        apache.mqadmin(
            folder / "mqadmin",
            *("clusterList", "-n", namesrv.address),
            java_flags=flags("mqadmin"),
        )
    finally:
        for process in reversed(started):
            process.stop()
            process.dispose()
