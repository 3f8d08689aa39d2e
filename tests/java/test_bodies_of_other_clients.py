"""Bodies as other clients write them: Apache still makes of each what the recorded table says."""

from __future__ import annotations

import subprocess

from tests.support.common.other_clients import PACKAGE, bodies_of_other_clients, without_times
from tests.support.common.polling import SCALE
from tests.support.java.apache import java, server_home
from tests.support.processes.child_process import ROOT


def test_apache_reads_every_body_as_recorded() -> None:
    bodies = bodies_of_other_clients()
    lines = [f"{PACKAGE}{each.java_class} {each.body.encode().hex()}\n" for each in bodies]
    command = [java(), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"]
    command += [f"{server_home()}/lib/*", str(ROOT / "tests/java/tools/BodyReader.java")]
    done = subprocess.run(
        command, input="".join(lines), capture_output=True, text=True, timeout=120 * SCALE
    )
    answers = [without_times(line) for line in done.stdout.split("\n")[:-1]]
    assert [(each.body, answer) for each, answer in zip(bodies, answers, strict=True)] == [
        (each.body, each.apache) for each in bodies
    ], done.stderr
