"""The producer.

    async with Producer("orders-service", ClientSettings(namesrv_addrs=("127.0.0.1:9876",))) as p:
        result = await p.send(Message("orders", b"...", tags="new"))

A send returns when the broker has stored the message as its flush and replication settings ask;
see :class:`SendStatus` for "stored, but". Transactions are another producer.

Source: DefaultMQProducer, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Self

from failback.client.clock import REAL_CLOCK, Clock
from failback.client.consumelog.hook import NO_HOOK, ConsumeHook
from failback.client.errors import NotRunning, RouteNotFound
from failback.client.instance.identity import client_id_of
from failback.client.instance.instance import CLIENT_MANAGER, ClientManager, MQClientInstance
from failback.client.model import Message, SendResult, check_group
from failback.client.remoting.settings import ClientSettings
from failback.client.sending.sender import QueueSelector, Sender
from failback.protocol.body import MessageQueue
from failback.protocol.errors import ConfigError


class Producer:
    """One producer of a group.

    Args:
        group: Its name; one per instance.
        settings: Intervals, limits and switches, unscaled.
        hook: Receives every send attempt.
        clock, manager, rng: Replaced by tests.
    """

    def __init__(
        self,
        group: str,
        settings: ClientSettings,
        *,
        hook: ConsumeHook = NO_HOOK,
        clock: Clock = REAL_CLOCK,
        manager: ClientManager = CLIENT_MANAGER,
        rng: random.Random | None = None,
    ) -> None:
        check_group(group)
        self.group = group
        self.settings = settings
        self._hook = hook
        self._clock = clock
        self._manager = manager
        self._rng = rng
        self._instance: MQClientInstance | None = None
        self._sender: Sender | None = None

    async def start(self) -> None:
        """Make or join the instance, and send a heartbeat to the masters that are known."""
        if self._instance is not None:
            raise NotRunning(f"producer {self.group} was started before")
        if not self.settings.namesrv_addrs:
            raise ConfigError("namesrv_addrs", f"producer {self.group} has no name server")
        instance = self._manager.get_or_create(
            client_id_of(self.settings, rename=True),
            self.settings,
            clock=self._clock,
            hook=self._hook,
            rng=self._rng,
        )
        scaled = self.settings.scaled()
        sender = Sender(self.group, instance, scaled, self._hook, instance.rng)
        instance.register_producer(sender)
        self._instance, self._sender = instance, sender
        await instance.start()
        await instance.heartbeat_all()

    async def shutdown(self) -> None:
        """Tell the brokers and close. Sends under way fail."""
        if self._instance is None or self._sender is None:
            return
        instance, self._sender = self._instance, None
        await instance.unregister(self.group, None)
        await instance.shutdown_if_unused()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shutdown()

    async def send(
        self,
        message: Message,
        queue: MessageQueue | None = None,
        timeout_ms: float | None = None,
        *,
        selector: QueueSelector | None = None,
    ) -> SendResult:
        """Send and wait for the answer.

        With ``queue`` or ``selector`` there is one attempt; otherwise up to three on different
        queues within one time budget, ``timeout_ms`` or the settings' ``send_timeout_ms`` (real
        ms, not scaled when given here).

        Raises:
            MessageInvalid: A rule for topics and bodies is broken.
            RouteNotFound: There is no queue to send to now.
            SendFailed, SendCallTimeout: The attempts failed; the message may be stored.
            BrokerError: The broker refused, with a code that is not worth a retry.
            RemotingError: The one attempt with ``queue`` or ``selector`` got no answer.
        """
        sender = self._running_sender()
        if queue is not None:
            return await sender.send_to(message, queue, timeout_ms)
        if selector is not None:
            return await sender.send_selected(message, selector, timeout_ms)
        return await sender.send(message, timeout_ms)

    async def send_batch(
        self, messages: Sequence[Message], timeout_ms: float | None = None
    ) -> SendResult:
        """Send messages of one topic together, to one queue."""
        return await self._running_sender().send_batch(messages, timeout_ms)

    async def send_async(self, message: Message, timeout_ms: float | None = None) -> SendResult:
        """Send by the rules of Java's asynchronous send: retries only without an answer."""
        return await self._running_sender().send_async(message, timeout_ms)

    async def send_oneway(self, message: Message) -> None:
        """Send without an answer."""
        await self._running_sender().send_oneway(message)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of ``topic`` that can be sent to, brokers by name, then queue ids.

        Raises:
            RouteNotFound: There is none.
        """
        info = await self._running_sender().find_publish_info(topic)
        if not info.is_usable:
            raise RouteNotFound(topic)
        return list(info.queues)

    @property
    def instance(self) -> MQClientInstance:
        if self._instance is None:
            raise NotRunning(f"producer {self.group} isn't started")
        return self._instance

    @property
    def client_id(self) -> str:
        """Known after the start."""
        return self.instance.client_id

    def _running_sender(self) -> Sender:
        if self._sender is None:
            raise NotRunning(f"producer {self.group} isn't running")
        return self._sender
