"""Messages that a handler failed on: back to the broker, or failing that, sent again.

The broker stores a copy for the group's retry topic. When that call fails, for any reason,
the instance's inner producer sends one itself, to any broker. If the first call was stored and only
its answer lost, there are two copies then.

Source: DefaultMQPushConsumerImpl.sendMessageBack, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import logging

from failback.client.consumer.context import ConsumerContext
from failback.client.errors import ClientError
from failback.client.model import Message, retry_topic
from failback.client.remoting.api import CALL_ERRORS
from failback.protocol.body import MessageQueue
from failback.protocol.headers import ConsumerSendMsgBackRequestHeader
from failback.protocol.message import MAX_RECONSUME_TIMES, RECONSUME_TIME, MessageExt

logger = logging.getLogger(__name__)

_ERRORS = (ClientError, *CALL_ERRORS)


class SendBack:
    """Sends failed messages of one group back."""

    def __init__(self, context: ConsumerContext) -> None:
        self._context = context

    async def send_back(
        self, message: MessageExt, queue: MessageQueue | None, delay_level: int, reason: str
    ) -> bool:
        """Try the broker, then the inner producer. False: keep the message and retry it here.

        Args:
            queue: Where the message was pulled from: its broker's master is asked. ``None``
                asks the address that stored the message, as the consume-timeout scan does.
            delay_level: -1 dead-letter queue, 0 the broker's own steps, else that level.
            reason: FAIL or EXPIRE, for the log.
        """
        if await self._to_broker(message, queue, delay_level, reason):
            return True
        return await self._through_producer(message, reason)

    def note_local_retry(self, message: MessageExt) -> None:
        """Log that both ways failed and the message stays for another try here."""
        now = self._context.clock.mono_ns()
        self._note(message, "FAIL", "LOCAL", None, now, ok=True)

    async def _to_broker(
        self, message: MessageExt, queue: MessageQueue | None, delay_level: int, reason: str
    ) -> bool:
        context = self._context
        if queue is None:
            host, port = message.store_host
            addr: str | None = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        else:
            found = context.instance.brokers.find_publish(queue.broker_name)
            # Without a known master the request goes to the name server, which answers nothing
            # to it: 5 s and the connection are lost.
            addr = found.addr if found is not None else None
        header = ConsumerSendMsgBackRequestHeader(
            offset=message.physical_offset,
            group=context.group,
            delay_level=delay_level,
            origin_msg_id=message.msg_id,
            origin_topic=message.topic,
            unit_mode=False,
            max_reconsume_times=context.max_reconsume_times,
        )
        t0 = context.clock.mono_ns()
        try:
            await context.instance.api.send_back(addr, header)
        except _ERRORS as error:
            logger.warning("send back of %s failed: %s", message.msg_id, error)
            self._note(message, reason, "BROKER", addr, t0, ok=False)
            return False
        self._note(message, reason, "BROKER", addr, t0, ok=True)
        return True

    async def _through_producer(self, message: MessageExt, reason: str) -> bool:
        context = self._context
        copy = Message(retry_topic(context.group), message.body, flag=message.flag)
        # The same map, as in the reference: a later local retry of the original shows
        # RETRY_TOPIC and DELAY too, and an ORIGIN_MESSAGE_ID set before would be lost.
        copy.properties = message.properties
        properties = copy.properties
        properties["RETRY_TOPIC"] = message.topic
        properties[RECONSUME_TIME] = str(message.reconsume_times + 1)
        properties[MAX_RECONSUME_TIMES] = str(context.max_reconsume_times)
        properties.pop("TRAN_MSG", None)
        properties["DELAY"] = str(3 + message.reconsume_times)
        t0 = context.clock.mono_ns()
        addr: str | None = None
        try:
            result = await context.instance.inner_producer.send(copy)
        except _ERRORS as error:
            logger.warning("resend of %s to the retry topic failed: %s", message.msg_id, error)
            self._note(message, reason, "PRODUCER", addr, t0, ok=False)
            return False
        finally:
            # The reference's sender takes these two out of the shared map.
            properties.pop(RECONSUME_TIME, None)
            properties.pop(MAX_RECONSUME_TIMES, None)
        found = context.instance.brokers.find_publish(result.queue.broker_name)
        addr = found.addr if found is not None else None
        self._note(message, reason, "PRODUCER", addr, t0, ok=True)
        return True

    def _note(
        self, message: MessageExt, reason: str, path: str, addr: str | None, t0: int, *, ok: bool
    ) -> None:
        context = self._context
        context.hook.sendback(
            context.group,
            context.client_id,
            message,
            rt_next=message.reconsume_times + 1,
            reason=reason,
            path=path,
            ok=ok,
            addr=addr,
            t0=t0,
            t1=context.clock.mono_ns(),
        )
