"""The broker's consumer groups: ``config/subscriptionGroup.json`` and creation on first use."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from failback.broker.config.config import BrokerConfig
from failback.broker.metadata.versioned_table import VersionedTable, now_ms
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


def system_groups() -> list[SubscriptionGroupConfig]:
    """Return the groups that always exist."""
    return [SubscriptionGroupConfig(group_name=name) for name in SYSTEM_GROUPS]


class SubscriptionGroupManager(VersionedTable[SubscriptionGroupConfig, SubscriptionGroupWrapper]):
    """The group table with its version. SubscriptionGroupManager of apache/rocketmq 4.9.8."""

    kind = "consumer group"
    _wrapper = SubscriptionGroupWrapper

    def __init__(
        self, path: Path, config: BrokerConfig, *, clock_ms: Callable[[], int] = now_ms
    ) -> None:
        super().__init__(path, config, system_groups(), clock_ms=clock_ms)

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

    def check_new(self, name: str) -> None:
        if name not in self.table:
            check_group(name)
            check_room("groups", len(self.table), self._config.failback_max_groups)

    def name_of(self, entry: SubscriptionGroupConfig) -> str:
        return entry.group_name

    def to_wrapper(self) -> SubscriptionGroupWrapper:
        """Return version and table as GET_ALL_SUBSCRIPTIONGROUP_CONFIG answers them."""
        return SubscriptionGroupWrapper(
            data_version=self.data_version, subscription_group_table=dict(self.table)
        )

    def _unwrapped(
        self, wrapper: SubscriptionGroupWrapper
    ) -> tuple[DataVersion, dict[str, SubscriptionGroupConfig]]:
        return wrapper.data_version, wrapper.subscription_group_table
