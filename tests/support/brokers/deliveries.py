"""The delay service of a broker without sockets, at times that the test chooses."""

from __future__ import annotations

from failback.broker.config.time_scale import TimeScale
from failback.broker.messaging.delay_service import DelayService
from failback.protocol.codes import SCHEDULE_TOPIC
from failback.protocol.message import MessageExt, decode_records
from tests.support.brokers.broker_lab import BrokerLab


def stored(lab: BrokerLab, topic: str = "TopicTest", queue_id: int = 0) -> list[MessageExt]:
    """Return what a queue holds."""
    result = lab.controller.store.get_message("G", topic, queue_id, 0, 1000)
    return decode_records(b"".join(result.chunks), decompress=False)


class Deliveries:
    """The delay service of a lab at times that the test chooses, ms after the last store."""

    def __init__(self, lab: BrokerLab) -> None:
        self.lab = lab
        controller = lab.controller
        self.now = 0
        self.service = DelayService(
            controller.store,
            controller.delay_offsets,
            controller.parts.delivery,
            scale=TimeScale(),
            clock_ms=lambda: self.now,
            commit=controller.server.commit_now,
        )

    async def after(self, delay_ms: int) -> bool:
        """Deliver what is due ``delay_ms`` after the last waiting message was stored."""
        store = self.lab.controller.store
        last = max(
            store.store_time_of(
                SCHEDULE_TOPIC, queue, store.max_queue_offset(SCHEDULE_TOPIC, queue) - 1
            )
            for queue in range(18)
        )
        self.now = last + delay_ms
        return self.service.deliver_due()
