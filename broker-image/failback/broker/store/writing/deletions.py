"""Deleting on a master, and saying so in the log; hearing of it on a slave.

How the log says it: ``failback.broker.store.log.deletion``.
"""

from __future__ import annotations

from collections.abc import Callable

from failback.broker.store.config import StoreConfig
from failback.broker.store.log.deletion import DELETION_TOPIC, Deleted, Deletion, pack_deletion
from failback.broker.store.queues.queue_table import QueueTable
from failback.broker.store.writing.appending import Appender
from failback.broker.store.writing.dispatch import Dispatcher
from failback.protocol.codes import TRANSACTION_ROLLBACK


class Deletions:
    """What a store deletes for good.

    ``settle`` brings the queues up to date with the log, ``make_durable`` writes what was appended
    and syncs it.
    """

    def __init__(
        self,
        config: StoreConfig,
        queues: QueueTable,
        dispatcher: Dispatcher,
        appender: Appender,
        *,
        settle: Callable[[], None],
        make_durable: Callable[[], None],
    ) -> None:
        self._config = config
        self._queues = queues
        self._dispatcher = dispatcher
        self._appender = appender
        self._settle = settle
        self._make_durable = make_durable

    def delete_topic(self, topic: str) -> Deletion | None:
        """Delete the queues of ``topic``; the log keeps the records, and says that they are over.

        On a slave nothing is said, and ``None`` returned: its log is its master's.

        Raises:
            StoreError: The log does not take it; nothing is deleted.
        """
        self._settle()
        said = None if self._config.is_slave else self.say(Deleted.TOPIC, topic)
        self._queues.delete_topic(topic)
        return said

    def say(self, kind: Deleted, name: str) -> Deletion:
        """Let the log say, on the disk, that something is deleted from here on.

        Raises:
            StoreError: The log does not take it.
        """
        appended = self._appender.append(
            topic=DELETION_TOPIC,
            queue_id=0,
            flag=0,
            sys_flag=TRANSACTION_ROLLBACK,
            born_timestamp=0,
            born_host=self._config.store_host,
            reconsume_times=0,
            body=b"",
            properties=pack_deletion(kind, name),
            tags_code=0,
        )
        self._queues.forget_unused(DELETION_TOPIC, 0)
        self._make_durable()
        return Deletion(kind, name, appended.store_timestamp)

    def hear(
        self, on_deletion: Callable[[Deletion], None], on_new_queue: Callable[[str], None]
    ) -> None:
        """Call these on a slave: with each deletion in its master's log, and the topic of a queue.

        They are called in the middle of dispatch and must not fail.
        """
        self._dispatcher.on_deletion = on_deletion
        self._queues.on_new = on_new_queue
