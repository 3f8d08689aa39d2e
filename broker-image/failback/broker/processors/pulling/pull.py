"""PULL_MESSAGE (11, and 361 as 5.x clients send it): checks, read, commit, hold.

Source: PullMessageProcessor, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec

from failback.broker.clients.client_manager import ConsumerManager
from failback.broker.config.config import BrokerConfig
from failback.broker.config.identity import BrokerIdentity
from failback.broker.filters.subscription import (
    NO_FILTER,
    NO_FILTER_DATA,
    Subscription,
    carried_filter,
    is_tag_type,
    parse,
)
from failback.broker.metadata.groups import SubscriptionGroupManager
from failback.broker.metadata.offsets.consumer_offset_manager import ConsumerOffsetManager
from failback.broker.metadata.topics import OFFSET_MOVED_TOPIC, TopicConfigManager
from failback.broker.metadata.versioned_table import NewNames, now
from failback.broker.monitoring.statistics import BrokerStatistics
from failback.broker.processors.pulling.hold_service import (
    HeldPull,
    PullRequestHoldService,
    TooManyHeld,
)
from failback.broker.processors.pulling.pull_routing import route_pull
from failback.broker.processors.registry import handles
from failback.broker.remoting.connection import BrokerConnection
from failback.broker.remoting.limits import HELD_PULLS
from failback.broker.remoting.server import RemotingServer
from failback.broker.store.log.results import GetResult, GetStatus
from failback.broker.store.message_store import MessageStore
from failback.protocol.body import MessageQueue
from failback.protocol.codes import (
    FLAG_ONEWAY,
    FLAG_RESPONSE,
    PERM_READ,
    PULL_COMMIT,
    PULL_SUBSCRIPTION,
    PULL_SUSPEND,
    RequestCode,
    ResponseCode,
)
from failback.protocol.command import RemotingCommand, encode_pull_response_head
from failback.protocol.errors import ProtocolError, StoreError
from failback.protocol.fastjson import dumps
from failback.protocol.frames import SERIALIZE_JSON
from failback.protocol.headers import (
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    envelope_decoder,
    from_ext,
)
from failback.protocol.message import encode_properties, tags_code
from failback.protocol.route import SubscriptionGroupConfig

logger = logging.getLogger(__name__)

_REMARKS = {status: status.name.encode() for status in GetStatus}
HOLD_PASS_MS = 5000


class PullRefused(Exception):
    """A check failed: the code and remark to answer."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark


class Pull(msgspec.Struct):
    """One pull request on its way. ``first_pass`` is false once it has been held."""

    connection: BrokerConnection
    request: RemotingCommand
    header: PullMessageRequestHeader
    first_pass: bool = True
    may_wait: bool = True
    """Whether its connection may wait until its group is stored."""


class PullProcessor:
    """Hands out messages, and holds the requests that find none."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        identity: BrokerIdentity,
        server: RemotingServer,
        store: MessageStore,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        offsets: ConsumerOffsetManager,
        consumers: ConsumerManager[BrokerConnection],
        statistics: BrokerStatistics,
        clock: Callable[[], float],
        clock_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._identity = identity
        self._server = server
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._consumers = consumers
        self._statistics = statistics
        self._clock = clock
        self._clock_ms = clock_ms
        self._decode = envelope_decoder(PullMessageRequestHeader).decode
        self.hold: PullRequestHoldService[Pull] = PullRequestHoldService(
            store.max_queue_offset,
            self._run_again,
            bounds=lambda: (
                config.failback_max_held_pulls,
                config.failback_max_held_pulls_per_connection,
            ),
        )

    def register_hot_path(self, server: RemotingServer) -> None:
        """Take JSON requests before :meth:`handle`, without its decoding."""
        server.handle_fast(RequestCode.PULL_MESSAGE, self.fast)

    # --- two ways in -------------------------------------------------------------------

    def fast(
        self, connection: BrokerConnection, data: bytes, start: int, header_end: int, _end: int
    ) -> bool:
        """Answer a JSON request; false when it must be decoded generically."""
        if connection.is_fast_port:
            return False
        try:
            envelope = self._decode(data[start:header_end])
        except (msgspec.MsgspecError, RecursionError, ValueError):
            return False
        if envelope.flag & (FLAG_RESPONSE | FLAG_ONEWAY):
            return False
        self._server.commit()
        request = RemotingCommand(envelope.code, envelope.opaque)
        self._serve(Pull(connection, request, envelope.extFields))
        return True

    @handles(RequestCode.PULL_MESSAGE, main_port_only=True)
    @handles(RequestCode.LITE_PULL_MESSAGE, main_port_only=True)
    def handle(self, connection: BrokerConnection, request: RemotingCommand) -> None:
        """Answer any form of a pull request."""
        if request.is_oneway:
            return
        header = from_ext(PullMessageRequestHeader, request.ext_fields)
        self._serve(Pull(connection, request, header))

    # --- housekeeping --------------------------------------------------------------------

    def hold_pass(self) -> None:
        """Check every held pull: is there something after all, or is its time over?"""
        self.hold.sweep(self._clock() * 1000)
        self.hold.wake()

    def drained(self, connection: BrokerConnection) -> None:
        """The peer has read what it was sent: serve the pulls that waited for it."""
        while connection.deferred and not connection.write_paused and not connection.closed:
            pull = connection.deferred.popleft()
            pull.may_wait = False
            self._serve(pull)

    def _run_again(self, held: HeldPull[Pull]) -> None:
        held.request.first_pass = held.request.may_wait = False
        self._serve(held.request)

    # --- processing ----------------------------------------------------------------------

    def _serve(self, pull: Pull) -> None:
        connection = pull.connection
        if connection.write_paused:
            connection.deferred.append(pull)
            return
        try:
            self._process(pull)
        except NewNames:
            raise
        except PullRefused as refused:
            answer = pull.request.response(refused.code, refused.remark)
            connection.push(answer.encode())
        # The boundary of this processor: one bad pull must not end its connection.
        except Exception as error:
            if not isinstance(error, StoreError | ProtocolError):
                logger.exception("pull failed")
            remark = f"{type(error).__name__}: {error}"
            connection.push(pull.request.response(ResponseCode.SYSTEM_ERROR, remark).encode())

    def _process(self, pull: Pull) -> None:
        header = pull.header
        group = self._check(header) if pull.may_wait else now(lambda: self._check(header))
        subscription = self._subscription(header, group)
        began = self._clock()
        result = self._store.get_message(
            header.consumer_group,
            header.topic,
            header.queue_id,
            header.queue_offset,
            header.max_msg_nums,
            subscription.tags,
            subscription.matches,
        )
        is_slave = self._identity.is_slave
        verdict = route_pull(
            result.status,
            header.queue_offset,
            group,
            is_slave=is_slave,
            slave_read_enable=self._config.slave_read_enable,
            offset_check_in_slave=self._config.offset_check_in_slave,
            suggest_slave=result.suggest_pulling_from_slave,
        )
        if pull.first_pass and header.sys_flag & PULL_COMMIT and not is_slave:
            self._offsets.commit(
                header.consumer_group, header.topic, header.queue_id, header.commit_offset
            )
        topic, name, elapsed = header.topic, header.consumer_group, self._clock() - began
        self._statistics.read(topic, name, result.message_count, elapsed, result.bytes)
        if result.message_count:
            queue_id = header.queue_id
            self._statistics.read_queue(topic, name, queue_id, result.next_offset, elapsed)
        if (
            verdict.code == ResponseCode.PULL_NOT_FOUND
            and pull.first_pass
            and header.sys_flag & PULL_SUSPEND
        ):
            self._hold(pull, subscription)
            return
        if verdict.offset_moved and not is_slave:
            self._note_offset_moved(header, result.next_offset)
        self._answer(pull, result, verdict.code, verdict.suggested_broker_id)

    def _check(self, header: PullMessageRequestHeader) -> SubscriptionGroupConfig:
        """Refuse in the original's order; return the group's configuration."""
        if not self._config.broker_permission & PERM_READ:
            remark = f"the broker[{self._config.broker_ip1}] pulling message is forbidden"
            raise PullRefused(ResponseCode.NO_PERMISSION, remark)
        group = self._groups.find(header.consumer_group)
        if group is None:
            remark = f"subscription group [{header.consumer_group}] does not exist"
            raise PullRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not group.consume_enable:
            remark = f"subscription group no permission, {header.consumer_group}"
            raise PullRefused(ResponseCode.NO_PERMISSION, remark)
        topic = self._topics.table.get(header.topic)
        if topic is None:
            remark = f"topic[{header.topic}] not exist, apply first please!"
            raise PullRefused(ResponseCode.TOPIC_NOT_EXIST, remark)
        if not topic.perm & PERM_READ:
            remark = f"the topic[{header.topic}] pulling message is forbidden"
            raise PullRefused(ResponseCode.NO_PERMISSION, remark)
        if not 0 <= header.queue_id < topic.read_queue_nums:
            remark = (
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}]"
            )
            raise PullRefused(ResponseCode.SYSTEM_ERROR, remark)
        return group

    def _subscription(
        self, header: PullMessageRequestHeader, group: SubscriptionGroupConfig
    ) -> Subscription:
        if header.sys_flag & PULL_SUBSCRIPTION:
            subscription = self._carried_subscription(header)
        else:
            subscription = self._registered_subscription(header, group)
        if not subscription.is_tag and not self._config.enable_property_filter:
            remark = NO_FILTER + subscription.data.expression_type
            raise PullRefused(ResponseCode.SYSTEM_ERROR, remark)
        return subscription

    def _carried_subscription(self, header: PullMessageRequestHeader) -> Subscription:
        try:
            if is_tag_type(header.expression_type):
                return parse(header.topic, header.subscription, header.sub_version)
            return carried_filter(header)
        except ProtocolError as error:
            remark = f"parse the consumer's subscription failed: {error}"
            raise PullRefused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark) from error

    def _registered_subscription(
        self, header: PullMessageRequestHeader, config: SubscriptionGroupConfig
    ) -> Subscription:
        group = self._consumers.groups.get(header.consumer_group)
        if group is None:
            raise PullRefused(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's group info not exist"
            )
        if not config.consume_broadcast_enable and group.message_model == "BROADCASTING":
            remark = f"the consumer group[{header.consumer_group}] can not consume by broadcast way"
            raise PullRefused(ResponseCode.NO_PERMISSION, remark)
        subscription = group.subscriptions.get(header.topic)
        if subscription is None:
            raise PullRefused(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's subscription not exist"
            )
        if subscription.data.sub_version < header.sub_version:
            raise PullRefused(
                ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest"
            )
        if not subscription.is_tag and subscription.matches is None:
            raise PullRefused(ResponseCode.FILTER_DATA_NOT_EXIST, NO_FILTER_DATA)
        return subscription

    def _hold(self, pull: Pull, subscription: Subscription) -> None:
        header = pull.header
        timeout_ms: float = header.suspend_timeout_millis
        if timeout_ms > self._config.failback_max_suspend_millis:
            timeout_ms = self._config.failback_max_suspend_millis
        if not self._config.long_polling_enable:
            timeout_ms = self._config.time_scale.ms(self._config.short_polling_time_mills)
        held = HeldPull(
            pull,
            pull.connection,
            topic=header.topic,
            queue_id=header.queue_id,
            offset=header.queue_offset,
            tags=subscription.tags,
            deadline_ms=self._clock() * 1000 + timeout_ms,
        )
        try:
            self.hold.hold(held)
        except TooManyHeld as error:
            # Not code 19: upon that a client asks again at once.
            busy = self._server.limits.refuse(HELD_PULLS, pull.connection, str(error))
            raise PullRefused(ResponseCode.SYSTEM_BUSY, str(busy)) from error

    # --- answering -------------------------------------------------------------------------

    def _answer(self, pull: Pull, result: GetResult, code: int, suggested_id: int) -> None:
        request = pull.request
        if request.serialize_type == SERIALIZE_JSON:
            head = encode_pull_response_head(
                request.opaque,
                code,
                _REMARKS[result.status],
                suggest_which_broker_id=suggested_id,
                next_begin_offset=result.next_offset,
                min_offset=result.min_offset,
                max_offset=result.max_offset,
                body_bytes=result.bytes,
            )
            pull.connection.push_parts((head, *result.chunks), len(head) + result.bytes)
            return
        header = PullMessageResponseHeader(
            suggested_id, result.next_offset, result.min_offset, result.max_offset
        )
        body = b"".join(result.chunks)
        answer = request.response(code, result.status.name, header, body=body)
        pull.connection.push_parts((answer.encode(),), len(body))

    def _note_offset_moved(self, header: PullMessageRequestHeader, new_offset: int) -> None:
        """Record that a consumer has to move: a message in OFFSET_MOVED_EVENT."""
        queue = MessageQueue(header.topic, self._identity.broker_name, header.queue_id)
        logger.warning(
            "group %s asked for offset %d of %s, told to go on at %d",
            header.consumer_group,
            header.queue_offset,
            queue,
            new_offset,
        )
        event = {
            "consumerGroup": header.consumer_group,
            "messageQueue": queue,
            "offsetNew": new_offset,
            "offsetRequest": header.queue_offset,
        }
        properties = encode_properties(
            {"TAGS": header.consumer_group, "KEYS": header.consumer_group}
        )
        host = self._identity.store_host
        try:
            self._store.append(
                topic=OFFSET_MOVED_TOPIC.encode(),
                queue_id=0,
                flag=0,
                sys_flag=0,
                born_timestamp=self._clock_ms(),
                born_host=host,
                reconsume_times=0,
                body=dumps(event),
                properties=properties.encode(),
                tags_code=tags_code(header.consumer_group),
            )
            self._server.note_append()
        except StoreError as error:
            logger.warning("no OFFSET_MOVED_EVENT for %s: %s", queue, error)
