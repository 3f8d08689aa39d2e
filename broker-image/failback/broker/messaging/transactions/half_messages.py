"""Half messages and what ends them, as records of the log.

    RMQ_SYS_TRANS_HALF_TOPIC      what is prepared: the message, with its real place as properties
    RMQ_SYS_TRANS_OP_HALF_TOPIC   one record per ended transaction: the queue offset of its half
    the real topic                what was committed, of type commit, pointing at its half

Nothing is ever changed in place: a half message is over when an op record names it.

Source: TransactionalMessageBridge, EndTransactionProcessor, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Final

from failback.broker.messaging.delayed import (
    append_copy,
    real_place,
    stored_message,
    waiting_place,
)
from failback.broker.messaging.delivery import Delivery
from failback.broker.metadata.topics import (
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
    TopicConfigManager,
)
from failback.broker.metadata.versioned_table import now
from failback.broker.store.log.results import Appended
from failback.broker.store.message_store import MessageStore
from failback.protocol.codes import (
    PERM_READ,
    PERM_WRITE,
    SCHEDULE_TOPIC,
    TRANSACTION_COMMIT,
)
from failback.protocol.message import (
    PGROUP,
    REAL_QID,
    REAL_TOPIC,
    TAGS,
    WAIT,
    MessageExt,
    decode_properties,
    encode_properties,
    join_properties,
    tags_code,
)

HALF_TOPIC_BYTES: Final = TRANS_HALF_TOPIC.encode()
HALF_QUEUE: Final = 0
OP_TAG: Final = "d"
CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
CHECK_IMMUNITY: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"


def half_properties(properties: str, topic: str, queue_id: int) -> str:
    """Return the properties of the half message of one for queue ``queue_id`` of ``topic``."""
    table = decode_properties(properties)
    table |= {REAL_TOPIC: topic, REAL_QID: str(queue_id)}
    return join_properties(table)


class WrongTransaction(Exception):
    """The end of a transaction does not fit the half message it names."""


@dataclass(slots=True)
class HalfMessages:
    """Reads and writes the records of transactions. Appends are committed by the caller's run."""

    store: MessageStore
    topics: TopicConfigManager
    delivery: Delivery
    _: KW_ONLY
    store_host: bytes
    clock_ms: Callable[[], int]
    on_append: Callable[[], None]
    """Called after messages were appended and before they are committed."""

    def find(self, physical_offset: int, queue_offset: int, producer_group: str) -> MessageExt:
        """Return the half message that the end of a transaction names.

        Raises:
            WrongTransaction: There is none, or it is another one.
        """
        message = self.message_at(physical_offset)
        if message is None:
            raise WrongTransaction("Find prepared transaction message failed")
        if message.properties.get(PGROUP) != producer_group:
            raise WrongTransaction("The producer group wrong")
        if message.queue_offset != queue_offset:
            raise WrongTransaction("The transaction state table offset wrong")
        if message.topic != TRANS_HALF_TOPIC:
            raise WrongTransaction("The commit log offset wrong")
        return message

    def message_at(self, physical_offset: int) -> MessageExt | None:
        """Return the message that begins there, its body as stored."""
        return stored_message(self.store, physical_offset)

    def commit(self, half: MessageExt) -> None:
        """Store the message in its real place, or where it waits if it is delayed.

        One that can't be stored there is parked: its transaction has ended all the same.

        Raises:
            WrongTransaction: The half message does not say where that is.
            StoreError: It was not appended.
        """
        place = real_place(half)
        if place is None:
            raise WrongTransaction("the half message names no topic")
        (topic, queue_id), properties = place, dict(half.properties)
        levels = len(self.store.delays)
        waiting = waiting_place(join_properties(properties), topic, queue_id, levels)
        if waiting is not None:
            topic, (queue_id, properties) = SCHEDULE_TOPIC, waiting
        self.delivery.deliver(
            half,
            topic,
            queue_id,
            properties,
            transaction_type=TRANSACTION_COMMIT,
            prepared_transaction_offset=half.physical_offset,
        )
        self.on_append()

    def close(self, half: MessageExt) -> None:
        """Store the op record that ends a transaction, committed or not.

        Raises:
            StoreError: It was not appended.
        """
        now(lambda: self._topic(TRANS_OP_HALF_TOPIC))
        self.store.append(
            topic=TRANS_OP_HALF_TOPIC.encode(),
            queue_id=half.queue_id,
            flag=0,
            sys_flag=0,
            born_timestamp=self.clock_ms(),
            born_host=self.store_host,
            reconsume_times=0,
            body=str(half.queue_offset).encode(),
            properties=encode_properties({TAGS: OP_TAG, WAIT: "true"}).encode(),
            tags_code=tags_code(OP_TAG),
        )
        self.on_append()

    def put_back(self, half: MessageExt, properties: dict[str, str]) -> Appended:
        """Store a half message again at the end of its queue; the old one is passed by.

        Raises:
            MessageIllegal: Its properties have become too long.
            StoreError: It was not appended.
        """
        appended = append_copy(
            self.store,
            half,
            topic=TRANS_HALF_TOPIC,
            queue_id=half.queue_id,
            properties=properties,
            reconsume_times=half.reconsume_times,
        )
        self.on_append()
        return appended

    def give_up(self, half: MessageExt) -> None:
        """Keep a transaction without an end for a person: in TRANS_CHECK_MAX_TIME_TOPIC.

        Raises:
            StoreError: It was not appended.
        """
        now(lambda: self._topic(TRANS_CHECK_MAX_TIME_TOPIC))
        self.delivery.deliver(half, TRANS_CHECK_MAX_TIME_TOPIC, 0, half.properties)
        self.on_append()

    def put_aside(self, physical_offset: int) -> None:
        """Keep that the half message there is damaged.

        Raises:
            StoreError: It was not appended.
        """
        self.delivery.put_aside.keep(None, physical_offset, "its half message is damaged")
        self.on_append()

    def ensure_half_topic(self) -> None:
        """Create the topic of half messages when it is not there yet."""
        self._topic(TRANS_HALF_TOPIC)

    def _topic(self, name: str) -> None:
        self.topics.create_in_send_back(name, 1, PERM_READ | PERM_WRITE)
