"""A consumer as a process of its own that never finishes one message, for tests that kill it.

``python -m tests.faults.modes.stuck_consumer NAMESRV GROUP TOPIC NOTES GATE TIMERS``: appends
``QUEUE OFFSET`` to NOTES at the end of each handler call. The handler that gets offset GATE waits
for ever; -1 is none. TIMERS multiplies the consumer's periods. Prints ``ready`` after the start.
"""

from __future__ import annotations

import asyncio
import os
import sys

from failback.client.consumer.consumer import PushConsumer
from failback.client.model import ConsumeFrom, ConsumeResult
from failback.client.remoting.settings import ClientSettings
from failback.protocol.message import MessageExt

SPAN = 20
"""consumeConcurrentlyMaxSpan: no pull while more offsets than these lie above the lowest."""
HANDLER_SECONDS = 0.2
"""Long enough that the pull after a batch leaves before any of the batch can be committed."""


async def main(
    namesrv: str, group: str, topic: str, notes_file: str, gate: int, timers: float
) -> None:
    notes = os.open(notes_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def handle(messages: list[MessageExt]) -> ConsumeResult:
        for message in messages:
            if message.queue_offset == gate:
                await asyncio.Event().wait()
            await asyncio.sleep(HANDLER_SECONDS)
            os.write(notes, f"{message.queue_id} {message.queue_offset}\n".encode())
        return ConsumeResult.SUCCESS

    settings = ClientSettings(
        namesrv_addrs=(namesrv,),
        client_ip="127.0.0.1",
        consume_concurrently_max_span=SPAN,
        heartbeat_interval_ms=1_000,
        persist_offset_first_ms=10_000 * timers,
        persist_offset_interval_ms=5_000 * timers,
    )
    consumer = PushConsumer(group, settings, handle, consume_from=ConsumeFrom.FIRST_OFFSET)
    consumer.subscribe(topic)
    await consumer.start()
    print("ready", flush=True)
    await consumer.wait()


if __name__ == "__main__":
    own = sys.argv[1:]
    asyncio.run(main(own[0], own[1], own[2], own[3], int(own[4]), float(own[5])))
