"""What is done to a run from outside, by nobody of the harness: tools, and a frozen process."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from failback.chaos.cluster.wire import WireConnection
from failback.chaos.workload.process import at_work_on
from failback.client.admin.admin import AdminClient
from failback.protocol.calls import any_request
from failback.protocol.codes import RequestCode
from failback.protocol.headers import ConsumerSendMsgBackRequestHeader
from tests.support.chaos.chaos_lab import LocalCluster
from tests.support.common.polling import wait_until


def reset_to_run_zero(cluster: LocalCluster, run_dir: Path) -> None:
    """An operator sets the group back to the moment at which this hand began, 4 s later."""
    begun_ms = round(time.time() * 1000)
    view = cluster.target().view()
    (master,) = [each for each in view.members if each.role == "master"]
    time.sleep(4)

    async def reset() -> None:
        async with AdminClient(list(view.nameservers)) as admin:
            await admin.reset_offset(master.address, "group-orders", "orders", begun_ms)

    _await(reset())


def freeze_a_member(cluster: LocalCluster, run_dir: Path) -> None:
    """Member 0 stops for longer than a broker believes in a silent client, then goes on.

    It is frozen with nothing left to handle, and goes on when the other has caught up. Then both
    have come to the end of every queue, so it does not matter whose commit comes last when the
    queues go back: with a lower one last, a part would come a third time, for another cause.
    """
    pid = _pid_of(run_dir, "group-orders-0")
    time.sleep(8)
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(30)
    finally:
        os.kill(pid, signal.SIGCONT)


def send_back_as_a_stranger(cluster: LocalCluster, run_dir: Path) -> None:
    """A tool that is not part of the run sends messages back that were consumed in order."""
    time.sleep(5)
    (master,) = [each for each in cluster.target().view().members if each.role == "master"]
    with WireConnection(master.address) as connection:
        left = 1000
        for queue, (lowest, highest) in sorted(connection.topic_stats("orders").items()):
            offset = lowest
            while left > 0 and offset < highest:
                pulled = connection.pull("orders", queue, offset)
                assert pulled.messages, (queue, offset, pulled.code)
                for message in pulled.messages[:left]:
                    header = ConsumerSendMsgBackRequestHeader(
                        message.physical_offset,
                        "group-orders",
                        3,
                        message.offset_msg_id,
                        "orders",
                        unit_mode=False,
                        max_reconsume_times=16,
                    )
                    connection.ask(any_request(RequestCode.CONSUMER_SEND_MSG_BACK, header))
                left -= len(pulled.messages[:left])
                offset = pulled.messages[-1].queue_offset + 1
        assert left == 0, f"{left} were not there yet"


def _pid_of(run_dir: Path, name: str) -> int:
    """The pid of a workload process, once it runs."""

    def running() -> list[int]:
        plans = (run_dir / "plans").glob(f"*-{name}.json")
        return [pid for plan in plans for pid, _ in at_work_on(plan)]

    wait_until(running, f"process {name}")
    return running()[-1]


def _await(work: Coroutine[Any, Any, None]) -> None:
    """In the hand's thread, which has no loop of its own."""
    asyncio.run(work)
