"""A consumer as a process of its own, for tests that kill it.

``python -m tests.integration.client.consume_program NAMESRV TIME_SCALE GROUP TOPIC FOLDER
HANDLER_MS``: writes its consume log to FOLDER, and every message also to ``FOLDER/handled``, from
within the handler and behind the log's back. Prints ``ready`` after the start.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from failback.client.consumelog.hook import LogHook
from failback.client.consumelog.writer import ConsumeLog
from failback.client.consumer.consumer import PushConsumer
from failback.client.model import ConsumeFrom, ConsumeResult
from failback.client.remoting.settings import ClientSettings
from failback.protocol.message import MessageExt


async def main(
    namesrv: str, time_scale: float, group: str, topic: str, folder: Path, handler_ms: float
) -> None:
    log = ConsumeLog(folder, run="r", proc_no=1, role="consumer", host="h")
    notes = os.open(folder / "handled", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    async def handle(messages: list[MessageExt]) -> ConsumeResult:
        for message in messages:
            os.write(notes, f"{message.queue_id} {message.queue_offset}\n".encode())
        await asyncio.sleep(handler_ms / 1000)
        return ConsumeResult.SUCCESS

    settings = ClientSettings(
        namesrv_addrs=(namesrv,), client_ip="127.0.0.1", time_scale=time_scale
    )
    consumer = PushConsumer(
        group, settings, handle, hook=LogHook(log), consume_from=ConsumeFrom.FIRST_OFFSET
    )
    consumer.subscribe(topic)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await consumer.start()
    print("ready", flush=True)
    await stop.wait()
    await consumer.shutdown()
    log.close()
    os.close(notes)


if __name__ == "__main__":
    own = sys.argv[1:]
    asyncio.run(main(own[0], float(own[1]), own[2], own[3], Path(own[4]), float(own[5])))
