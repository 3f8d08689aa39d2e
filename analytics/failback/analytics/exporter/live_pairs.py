"""A survey's answers as facts of pairs, which the live view of all tools is made of. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from failback.analytics.exporter.survey import BrokerAnswers, Survey
from failback.analytics.live.facts import MemberFacts, OffsetFile, PairFacts, table_of

OffsetFiles = Mapping[tuple[str, int], OffsetFile]
"""Broker name and id to its consumerOffset.json, where that is mounted."""
SyncAges = Mapping[tuple[str, int], float]
"""Broker name and id of slaves to the seconds since they copied, as surveys show them."""


def member_facts(
    broker: BrokerAnswers, file: OffsetFile | None = None, sync_age: float | None = None
) -> MemberFacts:
    return MemberFacts(
        broker.address,
        broker.broker_id,
        broker.up,
        broker.boot_ms,
        broker.config,
        None if broker.offsets is None else table_of(broker.offsets),
        file,
        None if file is None else file.age_seconds,
        sync_age,
    )


def pair_facts(
    survey: Survey,
    brokers: Iterable[BrokerAnswers],
    files: OffsetFiles,
    sync_ages: SyncAges,
) -> PairFacts:
    """Facts of the members of one pair."""
    members = tuple(brokers)
    acting = next((each for each in members if each.ends), members[0])
    return PairFacts(
        acting.broker,
        tuple(
            member_facts(
                each,
                files.get((each.broker, each.broker_id)),
                sync_ages.get((each.broker, each.broker_id)),
            )
            for each in members
        ),
        survey.wall,
        acting.ends,
        acting.begins,
        {group: len(each.connection_set) for group, each in acting.groups.items()},
    )
