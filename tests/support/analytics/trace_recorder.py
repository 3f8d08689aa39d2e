"""Records what an unmodified 4.9.8 client writes to the trace topic of a broker of ours:

.venv/bin/python -m tests.support.analytics.trace_recorder > tests/data/analytics/trace_bodies.txt
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from failback.analytics.trace.records import decode_body
from failback.client.admin.admin import AdminClient
from failback.client.remoting.connection import RemotingClient
from failback.protocol.codes import PULL_SUBSCRIPTION, RequestCode, ResponseCode
from failback.protocol.command import RemotingCommand
from failback.protocol.headers import PullMessageRequestHeader
from failback.protocol.message import decode_records
from failback.protocol.route import TopicConfig
from tests.support.analytics.trace_builder import PICTURES, TRACE_TOPIC
from tests.support.common.polling import wait_until
from tests.support.java.java_lab import Lab

ORIGIN = """\
# Origin: what rocketmq-client 4.9.8 (Maven Central) wrote to RMQ_SYS_TRACE_TOPIC of a broker of
# ours. tests/java/programs/TracedGroup.java sends ten messages, five one by one, four as a batch
# and one in a transaction, and consumes them in batches of two; handlers of numbers that 5 divides
# fail once. Recorded by: .venv/bin/python -m tests.support.analytics.trace_recorder
# One body per line behind its name; \u2401 stands for byte 1, \u2402 for byte 2."""


async def record(folder: Path) -> list[bytes]:
    """Bodies of the trace topic, in the order of their storing."""
    lab = Lab(folder)
    try:
        ns = lab.namesrv()
        broker = lab.broker(
            "failback", ns, settings={"failbackTimeScale": 0.2, "traceTopicEnable": "true"}
        )
        broker.start()
        async with AdminClient([ns.address]) as admin, RemotingClient() as client:
            await admin.create_topic(broker.address, TopicConfig("JavaTopic", 1, 1))
            group = lab.program("TracedGroup", ns, fail=5, batch=2)
            group.wait_for("ready")
            for command in ("send 0 5", "batch 5 4", "commit 9", "start a"):
                group.tell(command)
            group.wait_for("joined a")
            wait_until(lambda: got(group.lines()) >= 12, "all were handled", 90)
            found: list[bytes] = []
            while len(kinds(found)) < 4 or ends(found) < got(group.lines()):
                found = await bodies(client, broker.address)
                await asyncio.sleep(0.2)
            group.end_input()
            return await bodies(client, broker.address)
    finally:
        lab.dispose()


def got(lines: list[str]) -> int:
    return sum(line.startswith("got ") for line in lines)


def kinds(found: list[bytes]) -> set[str]:
    return {each.kind for body in found for each in decode_body(body).records}


def ends(found: list[bytes]) -> int:
    return sum(each.kind == "SubAfter" for body in found for each in decode_body(body).records)


async def bodies(client: RemotingClient, addr: str) -> list[bytes]:
    """Pull the trace topic's only queue from its beginning."""
    found: list[bytes] = []
    while True:
        header = PullMessageRequestHeader(
            "TOOLS_CONSUMER", TRACE_TOPIC, 0, len(found), 32, PULL_SUBSCRIPTION, 0, 0, 0, "*", "TAG"
        )
        request = RemotingCommand.request(RequestCode.PULL_MESSAGE, header)
        answer = await client.invoke(addr, request, 5000)
        if answer.code != ResponseCode.SUCCESS:
            return found
        found += [message.body for message in decode_records(answer.body)]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(record(Path(folder)))
    print(ORIGIN)
    for number, body in enumerate(found):
        text = body.decode()
        for sign, picture in PICTURES.items():
            text = text.replace(sign, picture)
        print(f"body-{number:02} {text}")


if __name__ == "__main__":
    main()
