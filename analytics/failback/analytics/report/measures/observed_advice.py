"""Which setting would have made an observed return cost less: ``knobs`` of its report. Pure.

The predictor is asked about the group that may have consumed most again, with its measured rate,
the settings that its broker told, and the time that the master was away. What clients are set to
is not on the wire, so Apache's defaults stand for it.
"""

from __future__ import annotations

from dataclasses import replace

from failback.analytics.live.facts import is_canary
from failback.analytics.observe.observation import Observation
from failback.analytics.observe.redelivery import GroupReturn, Return
from failback.analytics.predict.faults import FAULTS
from failback.analytics.predict.knobs import rank_knobs, useful
from failback.analytics.predict.settings import Settings
from failback.analytics.predict.sources import with_broker_config
from failback.analytics.report.measures.forecast import MAX_KNOBS, knob_row
from failback.analytics.report.measures.numbers import Row
from failback.protocol.errors import ConfigError

_OURS = "failback"
"""What settings begin with that Apache's brokers don't have."""
_APACHE_LACKS = frozenset({"slaveSyncInterval"})


def observed_knobs(observation: Observation) -> tuple[list[Row], str]:
    """Return ``knobs``, and why there are none."""
    found = [
        (group.at_most, each, group)
        for each in observation.returns
        if each.outage.back is not None
        for group in each.groups
        if group.at_most and group.consumed and not is_canary(group.group)
    ]
    if not found:
        return [], "no group is known to have consumed anything again"
    _, returned, group = max(found, key=lambda each: each[0])
    try:
        rows = _ranked(observation, returned, group)
    except ConfigError as error:
        return [], str(error)
    return rows, "no setting that the predictor knows would have saved anything"


def _ranked(observation: Observation, returned: Return, group: GroupReturn) -> list[Row]:
    outage = returned.outage
    assert outage.back is not None
    config = observation.configs.get(outage.pair, {})
    began = observation.began or 0.0
    settings = with_broker_config(Settings(), config)
    settings = replace(
        settings,
        rate=max(0.1, group.consumed / max(1.0, outage.gone[0] - began)),
        queues=len(group.queues),
        members=max(1, group.members),
        slaves=1,
    )
    plan = replace(
        FAULTS["handover" if group.owner_changed else "kill"],
        down_seconds=max(1.0, (sum(outage.back) - sum(outage.gone)) / 2),
    )
    better = [
        knob
        for knob in useful(rank_knobs(settings, plan))
        if (knob.saved > 0 or knob.saved_worst > 0) and _exists(knob.key, config)
    ]
    return [knob_row(knob.to_dict()) for knob in better[:MAX_KNOBS]]


def _exists(key: str, config: dict[str, str]) -> bool:
    """Whether the broker has such a setting, or it is none of a broker."""
    is_ours = any(name.startswith(_OURS) for name in config)
    return is_ours or not (key.startswith(_OURS) or key in _APACHE_LACKS)
