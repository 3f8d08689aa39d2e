"""A consumer of the workload whose handler also keeps notes behind the consume log's back.

``python -m tests.faults.cluster.recording_consumer NOTES consume ...``: the arguments after NOTES
are those of ``failback workload``. The handler appends ``b TOPIC QUEUE OFFSET`` to NOTES before
anything else and ``e TOPIC QUEUE OFFSET`` at its very end, one ``write`` to an ``O_APPEND`` file
each.
"""

from __future__ import annotations

import os
import sys

from failback.chaos.workload import consumer, main
from failback.chaos.workload.handler import WorkloadHandler
from failback.client.model import ConsumeResult
from failback.protocol.message import MessageExt


def noting_handler(path: str) -> type[WorkloadHandler]:
    notes = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def note(kind: str, message: MessageExt) -> None:
        line = f"{kind} {message.topic} {message.queue_id} {message.queue_offset}\n"
        os.write(notes, line.encode())

    class NotingHandler(WorkloadHandler):
        async def __call__(self, messages: list[MessageExt]) -> ConsumeResult:
            for message in messages:
                note("b", message)
            result = await super().__call__(messages)
            for message in messages:
                note("e", message)
            return result

    return NotingHandler


if __name__ == "__main__":
    consumer.WorkloadHandler = noting_handler(sys.argv[1])  # type: ignore[attr-defined]
    sys.exit(main(sys.argv[2:]))
