"""The check: half messages that nothing has ended are asked about at their producer group.

Every ``transactionCheckInterval`` both queues are read on from where the last check stopped; the
two places are consumer offsets of the group CID_RMQ_SYS_TRANS, and persist like those. A half
message that is older than ``transactionTimeOut`` and has no op record is stored again at the end of
its queue, so that the place can move on. One producer of its group is asked.

Source: TransactionalMessageServiceImpl.check, AbstractTransactionalMessageCheckListener,
apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import itertools
import logging
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from failback.broker.clients.client_manager import ProducerManager
from failback.broker.config.config import BrokerConfig
from failback.broker.messaging.transactions.half_messages import (
    CHECK_IMMUNITY,
    CHECK_TIMES,
    HALF_QUEUE,
    PREPARED_QUEUE_OFFSET,
    HalfMessages,
)
from failback.broker.metadata.offsets.consumer_offset_manager import ConsumerOffsetManager
from failback.broker.metadata.topics import TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from failback.broker.remoting.connection import BrokerConnection
from failback.broker.store.log.results import MessageIllegal
from failback.broker.store.message_store import MessageStore
from failback.protocol.codes import RequestCode
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import ProtocolError, StoreError
from failback.protocol.headers import CheckTransactionStateRequestHeader
from failback.protocol.message import (
    PGROUP,
    REAL_QID,
    REAL_TOPIC,
    UNIQ_KEY,
    MessageExt,
    encode_record,
    join_properties,
    offset_msg_id,
    pack_host,
)

logger = logging.getLogger(__name__)

_NUMBER: Final = re.compile(r"-?[0-9]{1,18}")
GROUP: Final = "CID_RMQ_SYS_TRANS"
OPS_PER_READ: Final = 32
MOST_HALVES: Final = 2_000
"""Half messages checked in one round; the rest waits for the next. 4.9.8 stops after 60 s."""


@dataclass(slots=True)
class Ops:
    """The op records read so far.

    Attributes:
        ended: Queue offset of an ended half message -> of its op record.
        done: Queue offsets of op records that are of no more use.
        next_offset: The next op record to read.
    """

    next_offset: int
    ended: dict[int, int] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)

    def is_ended(self, half_offset: int) -> bool:
        """Whether an op record names that half message; it is of no more use then."""
        op_offset = self.ended.pop(half_offset, None)
        if op_offset is None:
            return False
        self.done.add(op_offset)
        return True

    def done_up_to(self, offset: int) -> int:
        """Return the offset behind the op records that are done, without a gap, from ``offset``."""
        while offset in self.done:
            offset += 1
        return offset


@dataclass(slots=True)
class TransactionCheck:
    """Runs the check of a master."""

    config: BrokerConfig
    store: MessageStore
    offsets: ConsumerOffsetManager
    producers: ProducerManager[BrokerConnection]
    halves: HalfMessages
    commit: Callable[[], None]
    """Writes what was appended; StoreError if the disk refuses."""
    clock_ms: Callable[[], int]
    _opaque: Iterator[int] = field(init=False, default_factory=itertools.count)

    def run_once(self) -> int:
        """Check the half messages behind the last check; return how often a producer was asked.

        A store that refuses writes ends the check at its current offset.
        """
        half_start, op_start = self._place(TRANS_HALF_TOPIC), self._place(TRANS_OP_HALF_TOPIC)
        ops = Ops(op_start)
        self._read_ops(ops, half_start)
        began = self.clock_ms()
        offset, asked = half_start, 0
        end = min(
            self.store.max_queue_offset(TRANS_HALF_TOPIC, HALF_QUEUE), half_start + MOST_HALVES
        )
        try:
            while offset < end:
                if not ops.is_ended(offset):
                    verdict = self._judge_or_keep(offset, ops, half_start, began)
                    if verdict is None:
                        break
                    asked += verdict
                offset += 1
        except (StoreError, OSError) as error:
            logger.error("transaction check stays at %d: %s", offset, error)
        if offset != half_start:
            try:  # what was put back must be in the log before the offset can be persisted
                self.commit()
            except StoreError:  # logged where the broker is stopped for it
                return asked
            self.offsets.commit(GROUP, TRANS_HALF_TOPIC, HALF_QUEUE, offset)
        op_end = ops.done_up_to(op_start)
        if op_end != op_start:
            self.offsets.commit(GROUP, TRANS_OP_HALF_TOPIC, HALF_QUEUE, op_end)
        return asked

    def _place(self, topic: str) -> int:
        low = self.store.min_queue_offset(topic, HALF_QUEUE)
        high = self.store.max_queue_offset(topic, HALF_QUEUE)
        return min(max(self.offsets.query(GROUP, topic, HALF_QUEUE), low), high)

    def _read_ops(self, ops: Ops, half_start: int) -> bool:
        """Read on in the op queue; tell whether there was anything."""
        entries = self.store.entries(TRANS_OP_HALF_TOPIC, HALF_QUEUE, ops.next_offset, OPS_PER_READ)
        for physical_offset, _, _ in entries:
            op = self.halves.message_at(physical_offset)
            half_offset = _half_offset(op)
            if half_offset is None or half_offset < half_start:
                ops.done.add(ops.next_offset)
            else:
                ops.ended[half_offset] = ops.next_offset
            ops.next_offset += 1
        return bool(entries)

    def _judge_or_keep(self, offset: int, ops: Ops, half_start: int, began: int) -> int | None:
        """As :meth:`_judge`; a half message that fails it is parked."""
        try:
            return self._judge(offset, ops, half_start, began)
        except (StoreError, OSError):
            raise
        # A fault of ours, at one message: the check must not end there every time.
        except Exception:
            logger.exception("half message at queue offset %d", offset)
            place = self.store.physical_offset_of(TRANS_HALF_TOPIC, HALF_QUEUE, offset)
            self.halves.put_aside(place)
            return 0

    def _judge(self, offset: int, ops: Ops, half_start: int, began: int) -> int | None:
        """Return 1 when a producer was asked, 0 when none was, ``None`` to stop the round here."""
        entries = self.store.entries(TRANS_HALF_TOPIC, HALF_QUEUE, offset, 1)
        half = self.halves.message_at(entries[0][0]) if entries else None
        if half is None:
            self.halves.put_aside(entries[0][0] if entries else -1)
            return 0
        if half.store_timestamp >= began:
            return None
        properties = dict(half.properties)
        times = _number(properties.get(CHECK_TIMES)) or 0
        age_ms = self.clock_ms() - half.born_timestamp
        if times >= self.config.transaction_check_max or age_ms > self._retained_ms:
            logger.error("transaction %s is given up after %d checks", half.msg_id, times)
            self.halves.give_up(half)
            return 0
        immunity_ms = self.config.time_scale.ms(self.config.transaction_time_out)
        own = properties.get(CHECK_IMMUNITY)
        if own is not None:
            seconds = _number(own)
            if seconds is not None and seconds >= 0:
                immunity_ms = self.config.time_scale.ms(seconds * 1000)
            if age_ms < immunity_ms:
                return self._pass_immune(half, properties, ops)
        elif 0 <= age_ms < immunity_ms:
            return None
        while self._read_ops(ops, half_start):  # until nothing can say any more that it has ended
            if ops.is_ended(offset):
                return 0
        try:
            return self._ask(half, properties, times + 1)
        except MessageIllegal as error:
            logger.error("transaction %s can't be put back: %s", half.msg_id, error)
            self.halves.give_up(half)
        except ProtocolError as error:  # it is put back, and given up after its last check
            logger.error("transaction %s can't be asked about: %s", half.msg_id, error)
        return 0

    @property
    def _retained_ms(self) -> int:
        hours = self.config.file_reserved_time
        return self.config.time_scale.ms(hours * 3_600_000)

    def _pass_immune(self, half: MessageExt, properties: dict[str, str], ops: Ops) -> int:
        """Pass one that asked for more time: ended under its first offset, or stored again."""
        first = _number(properties.get(PREPARED_QUEUE_OFFSET))
        if first is None or not ops.is_ended(first):
            properties.setdefault(PREPARED_QUEUE_OFFSET, str(half.queue_offset))
            try:
                self.halves.put_back(half, properties)
            except MessageIllegal as error:
                logger.error("transaction %s can't be put back: %s", half.msg_id, error)
                self.halves.give_up(half)
        return 0

    def _ask(self, half: MessageExt, properties: dict[str, str], times: int) -> int:
        """Put the message back and ask a producer of its group; return how many were asked."""
        properties[CHECK_TIMES] = str(times)
        properties.setdefault(PREPARED_QUEUE_OFFSET, str(half.queue_offset))
        again = self.halves.put_back(half, properties)
        group = properties.get(PGROUP, "")
        members = list(self.producers.groups.get(group, ()))
        if not members:
            logger.warning("transaction %s: no producer of %s is here", half.msg_id, group)
            return 0
        host = pack_host(*half.store_host)
        header = CheckTransactionStateRequestHeader(
            tran_state_table_offset=again.queue_offset,
            commit_log_offset=again.physical_offset,
            msg_id=properties.get(UNIQ_KEY),
            transaction_id=properties.get(UNIQ_KEY),
            offset_msg_id=offset_msg_id(host, again.physical_offset),
        )
        body = encode_record(
            topic=properties.get(REAL_TOPIC, half.topic),
            queue_id=_number(properties.get(REAL_QID)) or 0,
            body=half.body,
            properties=join_properties(properties),
            queue_offset=again.queue_offset,
            physical_offset=again.physical_offset,
            born_timestamp=half.born_timestamp,
            born_host=pack_host(*half.born_host),
            store_timestamp=again.store_timestamp,
            store_host=host,
            flag=half.flag,
            sys_flag=half.sys_flag,
            reconsume_times=half.reconsume_times,
        )
        request = RemotingCommand.request(
            RequestCode.CHECK_TRANSACTION_STATE, header, body, oneway=True
        )
        request.opaque = next(self._opaque) & 0x7FFFFFFF
        random.choice(members).push(request.encode())
        return 1


def _half_offset(op: MessageExt | None) -> int | None:
    if op is None:
        return None
    return _number(op.body.decode("ascii", "replace"))


def _number(text: str | None) -> int | None:
    """Return a whole number of the property's text, ``None`` if it is something else."""
    return int(text) if text is not None and _NUMBER.fullmatch(text) else None
