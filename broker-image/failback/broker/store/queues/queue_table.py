"""All consume queues of a broker: ``consumequeue/<topic>/<queue id>/``."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

from failback.broker.store.config import ENTRY_BYTES, StoreConfig
from failback.broker.store.log.files import TEMPORARY_PREFIX, Files
from failback.broker.store.log.mapped_file import MappedFileQueue, OpenFiles
from failback.broker.store.log.record import HEAD_BYTES, MAX_TOPIC_BYTES
from failback.broker.store.log.results import MessageIllegal
from failback.broker.store.log.syncing import ToSync
from failback.broker.store.queues.consume_queue import ConsumeQueue
from failback.protocol.codes import SCHEDULE_TOPIC

logger = logging.getLogger(__name__)


class QueueTable:
    """Finds queues by topic and id. Also 4.9's topic-queue table: see ConsumeQueue.next_offset."""

    def __init__(self, files: Files, config: StoreConfig) -> None:
        self._files = files
        self._config = config
        self._directory = config.consume_queue_directory
        self.open_files = OpenFiles(files, config.max_mapped_queue_files)
        self._queues: dict[tuple[bytes, int], ConsumeQueue] = {}
        self._topics: dict[str, dict[int, ConsumeQueue]] = {}
        self.on_new: Callable[[str], None] | None = None
        """Called with the topic of each queue that is made."""

    def load(self) -> None:
        """Find the queues on disk and where they end.

        Raises:
            StoreError: A file has another size than configured, or is none of a queue.
        """
        for topic in self._files.names(self._directory):
            directory = self._directory / topic
            if topic.startswith(TEMPORARY_PREFIX):
                self._files.delete(directory)
                continue
            for name in self._files.names(directory):
                if name.startswith(TEMPORARY_PREFIX):
                    self._files.delete(directory / name)
                elif name.isdecimal():
                    queue = self.find_or_create(topic.encode(errors="surrogateescape"), int(name))
                    queue.files.load()
                    queue.recover()

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        queues = self._topics.get(topic)
        return queues.get(queue_id) if queues is not None else None

    def has_topic(self, topic: str) -> bool:
        return topic in self._topics

    def find(self, topic: bytes, queue_id: int) -> ConsumeQueue | None:
        """As :meth:`get`, by the topic's bytes."""
        return self._queues.get((topic, queue_id))

    def find_or_create(self, topic: bytes, queue_id: int) -> ConsumeQueue:
        """Return the queue; a new one has no files yet.

        Raises:
            MessageIllegal: The topic can't be a directory's name, or the queue id is negative.
        """
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            queue = self._create(topic, queue_id)
        return queue

    def _create(self, topic: bytes, queue_id: int) -> ConsumeQueue:
        if not topic or topic in (b".", b"..") or b"/" in topic or b"\0" in topic:
            raise MessageIllegal(f"no topic can be called {topic!r}")
        if len(topic) > MAX_TOPIC_BYTES or queue_id < 0:
            raise MessageIllegal(f"topic of {len(topic)} bytes, queue id {queue_id}")
        name = topic.decode(errors="surrogateescape")
        directory = self._directory / name / str(queue_id)
        size = self._config.queue_file_bytes
        # Not synced on creation: a queue that a power loss takes away is rebuilt from the log.
        files = MappedFileQueue(self._files, self.open_files, directory, size, durable=False)
        queue = ConsumeQueue(name, topic, queue_id, files)
        queue.fixed_bytes = HEAD_BYTES + len(queue.topic_piece) + 2
        queue.is_schedule = name == SCHEDULE_TOPIC
        self._queues[topic, queue_id] = queue
        self._topics.setdefault(name, {})[queue_id] = queue
        if self.on_new is not None:
            self.on_new(name)
        return queue

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(self._queues.values())

    def __len__(self) -> int:
        return len(self._queues)

    def max_physical_offset(self) -> int:
        """End of the last record that any queue holds."""
        return max((queue.max_physical_offset for queue in self), default=0)

    def truncate(self, physical_offset: int) -> int:
        """Drop the entries of records at or behind ``physical_offset``; return how many."""
        return sum(queue.truncate(physical_offset) for queue in self)

    def drop_torn(self, physical_offset: int, *, cache_survived: bool) -> None:
        """Drop the entries of records at or behind ``physical_offset`` that a crash may have torn.

        A tear can leave an entry with the place of its record and another tags code. Of a killed
        process it is the last of its queue; of a machine that stopped it is any unflushed one.
        """
        for queue in self:
            if cache_survived:
                queue.drop_last(physical_offset)
            else:
                queue.truncate(physical_offset)

    def correct_min_offsets(self, min_physical_offset: int) -> None:
        for queue in self:
            queue.correct_min_offset(min_physical_offset)

    def drop_before(self, min_physical_offset: int) -> list[Path]:
        """Forget the files whose messages the log no longer holds; the caller deletes them."""
        return [path for queue in self for path in queue.drop_before(min_physical_offset)]

    def destroy_all(self) -> None:
        for queue in self:
            queue.destroy()

    def delete_topic(self, topic: str, before: int | None = None) -> None:
        """Delete the topic's queues and their files. The log keeps the records.

        With ``before`` only queues all of whose records lie before that physical offset: others
        are of the life that began there.
        """
        for queue in list(self._topics.get(topic, {}).values()):
            if before is None or queue.max_physical_offset <= before:
                self._remove(queue)

    def forget_unused(self, topic: bytes, queue_id: int) -> None:
        """Forget a queue that was made for a record that takes no offset, if it has none."""
        queue = self._queues.get((topic, queue_id))
        if queue is not None and not queue.next_offset:
            self._remove(queue)

    def begin_again(self, queue: ConsumeQueue) -> ConsumeQueue:
        """Delete a queue and return a new one in its place, which begins at offset 0."""
        self._remove(queue)
        return self._create(queue.topic_piece[1:], queue.queue_id)

    def _remove(self, queue: ConsumeQueue) -> None:
        had_files, directory = bool(queue.files.files), queue.files.directory
        queue.destroy()
        if had_files:
            self._sync_nearest(directory)
        del self._queues[queue.topic_piece[1:], queue.queue_id]
        of_topic = self._topics[queue.topic]
        del of_topic[queue.queue_id]
        self._files.remove_directory(directory)
        if not of_topic:
            del self._topics[queue.topic]
            self._files.remove_directory(self._directory / queue.topic)

    def _sync_nearest(self, directory: Path) -> None:
        """Make it last that files are gone: a power loss must not bring them back."""
        for each in (directory, *directory.parents):
            with contextlib.suppress(FileNotFoundError):
                self._files.sync_directory(each)
                return

    def delete_expired(self, min_physical_offset: int) -> None:
        """Delete the queues whose last entry lies before a physical offset, files and all.

        Queues of delayed messages stay. A queue that is used again begins at offset 0.
        """
        for queue in list(self):
            last = queue.entry(queue.max_offset - 1)
            if queue.is_schedule or last is None or last[0] >= min_physical_offset:
                continue
            logger.warning("%s queue %d has expired and is deleted", queue.topic, queue.queue_id)
            self._remove(queue)

    def unflushed_files(self, least_pages: int) -> list[tuple[ConsumeQueue, tuple[ToSync, ...]]]:
        """Return queues with at least ``least_pages`` dirty pages (0: any), their files to sync."""
        dirty = []
        for queue in self:
            start, end = queue.flushed_offset * ENTRY_BYTES, queue.max_offset * ENTRY_BYTES
            if end > start and end // 4096 - start // 4096 >= least_pages:
                # One more byte: recovery may have zeroed the file that begins where the queue ends.
                dirty.append((queue, queue.files.to_sync(start, end + 1)))
        return dirty
