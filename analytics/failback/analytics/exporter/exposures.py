"""What a kill of a master would cost each group right now: the predictor, fed with what is seen."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from failback.analytics.exporter.pair_history import PairHistory
from failback.analytics.exporter.survey import BrokerAnswers
from failback.analytics.predict.exposure import exposure
from failback.analytics.predict.settings import Settings
from failback.analytics.predict.sources import with_broker_config
from failback.protocol.errors import ConfigError

logger = logging.getLogger(__name__)

_FIRST_PERSIST_SECONDS: Final = 10.0
"""After its start a broker writes its offsets for the first time."""


def exposures(
    master: BrokerAnswers,
    pair: PairHistory,
    *,
    wall: float,
    slaves: int,
    lags: Mapping[tuple[str, str], Mapping[int, int]],
    persist_age_seconds: float | None = None,
    copy_age_seconds: float | None = None,
) -> dict[str, float]:
    """Return group to messages, for the groups whose rate is known; ``lags`` are the master's.

    The age of the offset file is what was seen, else the longest that it gets while the broker is
    well: its interval, and in its first seconds the time since the start.
    """
    base = base_settings(master, slaves)
    if persist_age_seconds is None:
        persist_age_seconds = longest_persist_age(base, wall - master.boot_ms / 1000)
    rates: dict[str, float] = {}
    for (_, group), rate in pair.committed_per_second.items():
        rates[group] = rates.get(group, 0.0) + rate
    behind, queues = _by_group(lags)
    found = {}
    for group, rate in rates.items():
        if not rate:
            found[group] = 0.0
            continue
        try:
            settings = replace(
                base,
                rate=min(rate, 1e7),
                queues=max(1, queues.get(group, 1)),
                members=max(1, _members(master, group)),
                backlog=float(behind.get(group, 0)),
            )
        except ConfigError as error:  # a size that the predictor does not know
            logger.debug("group %s: %s", group, error)
            continue
        found[group] = exposure(
            settings,
            persist_age_seconds=persist_age_seconds,
            copy_age_seconds=copy_age_seconds if slaves else None,
        ).most
    return found


def base_settings(master: BrokerAnswers, slaves: int) -> Settings:
    """Settings of a pair as its master's configuration says; the defaults where it is nonsense."""
    base = Settings(slaves=max(0, slaves))
    try:
        return with_broker_config(base, master.config)
    except ConfigError as error:
        logger.debug("configuration of %s: %s", master.address, error)
        return base


def longest_persist_age(settings: Settings, uptime_seconds: float) -> float:
    """The oldest that the file of a healthy broker is, in seconds."""
    scaled = settings.scaled()
    first = _FIRST_PERSIST_SECONDS * scaled.constants
    if uptime_seconds < first:
        return max(0.0, uptime_seconds)
    return scaled.flush_consumer_offset_interval / 1000


def _members(master: BrokerAnswers, group: str) -> int:
    connection = master.groups.get(group)
    return len(connection.connection_set) if connection else 0


def _by_group(
    lags: Mapping[tuple[str, str], Mapping[int, int]],
) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """Return group to messages behind, and group to queues, over all topics."""
    messages: dict[str, int] = {}
    queues: dict[str, int] = {}
    for (_, group), behind in lags.items():
        messages[group] = messages.get(group, 0) + sum(behind.values())
        queues[group] = queues.get(group, 0) + len(behind)
    return messages, queues
