"""Whether the disk has room: while it has none, messages are refused, and everything else goes on.

Two things refuse messages: a disk that is nearly full (:class:`Expiry`), and a disk that refused to
give room. After the latter it is asked again for what it refused, until it gives that and the
reserve.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from failback.broker.disk_errors import NO_ROOM, is_fatal
from failback.broker.store.index.index_service import IndexService
from failback.broker.store.log.commit_log import CommitLog
from failback.broker.store.queues.entry_writer import EntryWriter
from failback.broker.store.upkeep.expiry import Expiry
from failback.broker.store.upkeep.reserve import Reserve
from failback.common.text import where_and_why

logger = logging.getLogger(__name__)

DISK_FULL: Final = "the broker's disk is full"
"""Refuses messages; a slave goes on copying its master's log, as it does in 4.9.8."""


class DiskRoom:
    """What refuses messages, and when it ends.

    Attributes:
        lack: What there was no room for, in words; None while there is room.
    """

    def __init__(
        self,
        *,
        reserve: Reserve,
        expiry: Expiry,
        log: CommitLog,
        writer: EntryWriter,
        index: IndexService,
        changed: Callable[[], None],
    ) -> None:
        """``changed`` is called when :attr:`refusal` may be another."""
        self._reserve = reserve
        self._expiry = expiry
        self._log = log
        self._writer = writer
        self._index = index
        self._changed = changed
        self.lack: str | None = None

    @property
    def refusal(self) -> str | None:
        """Why messages are refused; None while they are accepted."""
        return self.lack or (DISK_FULL if self._expiry.is_full else None)

    def begin(self) -> None:
        """Take the reserve. A disk without the room for it takes no messages.

        Raises:
            OSError: The disk is broken.
        """
        try:
            self._reserve.take()
        except OSError as error:
            if is_fatal(error):
                raise
            self.note(error)

    def end(self) -> None:
        """Leave nothing behind at a clean stop: a Java broker may be the next one."""
        self._reserve.give_up()

    def note(self, error: OSError) -> None:
        """Take note that there was no room. What waits to be written gets that of the reserve."""
        is_new = self.lack is None
        what = "has no room" if error.errno in NO_ROOM else "takes nothing"
        self.lack = f"the broker's disk {what}: {where_and_why(error)}"
        if is_new:
            logger.error("%s. Messages are refused until that has passed", self.lack)
            self._changed()
        if self._reserve.give_up():
            self._writer.write_all()

    def look(self) -> bool:
        """See how full the disk is, ask it again for what it refused; tell whether it gave that.

        Raises:
            OSError: The disk is broken.
        """
        self._expiry.look()
        has_given = self.lack is not None and self._ask_again()
        self._changed()
        return has_given

    def _ask_again(self) -> bool:
        self._writer.write_all()
        if self._writer.is_waiting:
            return False
        try:
            self._reserve.take()
            self._log.take_wanted_room()
            self._index.retry()
        except OSError as error:
            if is_fatal(error):
                raise
            self.note(error)
            return False
        logger.info("the disk has room again")
        self.lack = None
        return True
