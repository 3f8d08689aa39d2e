"""The broker's consumer groups: ``config/subscriptionGroup.json`` and creation on first use."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from failback.broker.config.config import BrokerConfig
from failback.broker.metadata.json_config import NotStored, TableFile, table_of
from failback.protocol.codes import SYSTEM_GROUPS
from failback.protocol.names import check_group, check_room
from failback.protocol.route import (
    DataVersion,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)

logger = logging.getLogger(__name__)

INTERNAL_PREFIX: Final = "CID_RMQ_SYS_"
"""Groups of the system itself: created even while auto-creation is off (MixAll 4.9.8)."""


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def system_groups() -> list[SubscriptionGroupConfig]:
    """Return the groups that always exist."""
    return [SubscriptionGroupConfig(group_name=name) for name in SYSTEM_GROUPS]


class SubscriptionGroupManager:
    """The group table with its version. SubscriptionGroupManager of apache/rocketmq 4.9.8.

    Every change bumps :attr:`data_version` and is persisted before the call returns; where the disk
    has no room, soon after it has some again.
    """

    def __init__(
        self,
        path: Path,
        config: BrokerConfig,
        *,
        clock_ms: Callable[[], int] = _now_ms,
    ) -> None:
        self.file = TableFile(path, lambda: config.failback_guard_offset_file)
        self._config = config
        self._clock_ms = clock_ms
        self.table: dict[str, SubscriptionGroupConfig] = {
            group.group_name: group for group in system_groups()
        }
        self.data_version = DataVersion(timestamp=clock_ms(), counter=0)

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """Return the group's configuration, created with defaults when that is allowed.

        Raises:
            NameRefused: There is none, and nothing may be called so.
            TableFull: There is none, and no room for another.
        """
        existing = self.table.get(group)
        if existing is not None:
            return existing
        allowed = self._config.auto_create_subscription_group
        if not allowed and not group.startswith(INTERNAL_PREFIX):
            return None
        self.check_new(group)
        created = SubscriptionGroupConfig(group_name=group)
        with self._whole():
            self.table[group] = created
        logger.info("created consumer group %s", group)
        return created

    def check_new(self, group: str) -> None:
        """Refuse a group that is not here and cannot be made. Raises as :meth:`find`."""
        if group not in self.table:
            check_group(group)
            check_room("groups", len(self.table), self._config.failback_max_groups)

    def update(self, group: SubscriptionGroupConfig) -> None:
        """Create or replace a group.

        Raises as :meth:`find`, and:
            NotStored: The disk does not take it; nothing was changed.
        """
        self.check_new(group.group_name)
        old = self.table.get(group.group_name)
        with self._whole(at_once=True):
            self.table[group.group_name] = group
        logger.info("consumer group: %s, was %s", group, old)

    def delete(self, name: str) -> bool:
        """Remove a group; false when there was none. Its offsets stay.

        Raises:
            NotStored: The disk does not take it; nothing was changed.
        """
        if name not in self.table:
            logger.warning("consumer group %s not deleted: there is none", name)
            return False
        with self._whole(at_once=True):
            del self.table[name]
        logger.info("deleted consumer group %s", name)
        return True

    def take_back(self, group: SubscriptionGroupConfig) -> None:
        """Put back a group that was deleted only halfway; a disk without room takes it later."""
        with self._whole():
            self.table[group.group_name] = group

    def forget(self, name: str) -> None:
        """Remove a group on a slave, whose master did; the version stays behind the master's."""
        if self.table.pop(name, None) is not None:
            self.data_version = self.data_version.next(self.data_version.timestamp)
            self.file.keep(self._to_text)

    def to_wrapper(self) -> SubscriptionGroupWrapper:
        """Return version and table as GET_ALL_SUBSCRIPTIONGROUP_CONFIG answers them."""
        return SubscriptionGroupWrapper(
            data_version=self.data_version, subscription_group_table=dict(self.table)
        )

    def replace_all(self, wrapper: SubscriptionGroupWrapper) -> bool:
        """Take over a master's version and table if the version differs; false if it is equal."""
        if wrapper.data_version == self.data_version:
            return False
        before, version = self.table, self.data_version
        self.table, self.data_version = dict(wrapper.subscription_group_table), wrapper.data_version
        try:
            self.file.keep(self._to_text)
        except OSError:  # the next copy is to differ again
            self.table, self.data_version = before, version
            raise
        return True

    def load(self) -> None:
        """Put the file's groups over the built-in ones and take its version.

        Raises:
            CorruptStore: It is there, can't be read, and its ``.bak`` is no help.
        """
        wrapper = self.file.load(table_of(SubscriptionGroupWrapper))
        if wrapper is not None:
            self.table.update(wrapper.subscription_group_table)
            self.data_version = wrapper.data_version

    def persist(self) -> None:
        """Write version and table.

        Raises:
            OSError: The file could not be written.
        """
        self.file.write(self._to_text())

    def _to_text(self) -> str:
        return self.to_wrapper().to_json(pretty=True).decode()

    @contextlib.contextmanager
    def _whole(self, *, at_once: bool = False) -> Iterator[None]:
        """Give what is changed inside a version of its own, and store it; or nothing of it holds.

        Args:
            at_once: Whether a disk that has no room now refuses the change: it was ordered.
        """
        before, version = dict(self.table), self.data_version
        yield
        self.data_version = version.next(self._clock_ms())
        try:
            if at_once:
                self.persist()
            else:
                self.file.keep(self._to_text)
        except OSError as error:
            self.table, self.data_version = before, version
            if at_once:
                raise NotStored(self.file.path, error) from error
            raise
