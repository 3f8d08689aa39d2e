"""The Predict page's question and answer: settings and a fault in, expected and worst case out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from failback.analytics.predict.faults import FAULTS, find_fault
from failback.analytics.predict.keys import KEYS
from failback.analytics.predict.knobs import rank_knobs, useful
from failback.analytics.predict.prediction import predict
from failback.analytics.predict.settings import Settings
from failback.common.text import typed
from failback.protocol.errors import ConfigError

DRAWS: Final = 2_000
"""Drawn in a few milliseconds, and steady to about two per cent."""
KNOB_DRAWS: Final = 500
SLIDERS: Final = (
    ("rate", 0, 5_000, 10),
    ("members", 1, 64, 1),
    ("queues", 1, 64, 1),
    ("flushConsumerOffsetInterval", 100, 30_000, 100),
    ("persistConsumerOffsetInterval", 100, 30_000, 100),
    ("slaveSyncInterval", 500, 60_000, 500),
    ("pullThresholdForQueue", 1, 2_000, 1),
    ("consumeThreadMax", 1, 64, 1),
    ("handlerMs", 0, 1_000, 1),
)
"""Settings that have a slider: key, least, greatest, step. The others are number fields."""
MOST_DOWN_SECONDS: Final = 86_400
Json = dict[str, Any]


def answer(fault: str, values: Mapping[str, Any], down_seconds: float | None = None) -> Json:
    """Predict one fault, and what each knob would save.

    Raises:
        ConfigError: Names the setting, the fault or ``down_seconds``.
    """
    plan = find_fault(fault)
    if down_seconds is not None and not 0 < down_seconds <= MOST_DOWN_SECONDS:
        what = f"must be above 0 and at most {MOST_DOWN_SECONDS}, got {down_seconds:g}"
        raise ConfigError("down_seconds", what)
    if down_seconds is not None and plan.kills_master and plan.broker_uptime_seconds is None:
        plan = replace(plan, down_seconds=down_seconds)
    settings = Settings().with_values(values)
    found = predict(settings, plan, draws=DRAWS)
    base = predict(settings, plan, draws=KNOB_DRAWS)
    knobs = useful(rank_knobs(settings, plan, before=base, draws=KNOB_DRAWS))[:8]
    return {
        "settings": settings.to_dict(),
        "down_seconds": plan.down_seconds,
        "prediction": found.to_dict(),
        "knobs": [knob.to_dict() for knob in knobs],
        "command": command(fault, values, down_seconds),
    }


def command(fault: str, values: Mapping[str, Any], down_seconds: float | None) -> str:
    """The same question on the command line."""
    words = ["failback", "predict", "--fault", fault]
    if down_seconds is not None:
        words += ["--down", f"{down_seconds:g}"]
    for key, value in values.items():
        text = str(value).lower() if isinstance(value, bool) else f"{value}"
        words += ["--set", f"{key}={text}"]
    return typed(*words)


def presets(clusters: Sequence[Json], configs: Mapping[str, Mapping[str, str]]) -> list[Json]:
    """Live groups as settings.

    Args:
        clusters: As the Fleet page has them.
        configs: Address to what the broker there is configured with.
    """
    found = []
    for cluster in clusters:
        for pair in cluster["pairs"]:
            master = next((each for each in pair["members"] if each["role"] == "master"), None)
            config = configs.get(master["address"], {}) if master is not None else {}
            of_pair = {name: config[name] for name in config if _is_asked_of_brokers(name)}
            of_pair["slavesPerPair"] = str(
                sum(each["role"] != "master" for each in pair["members"])
            )
            found += [
                {
                    "value": "/".join((cluster["cluster"], pair["broker"], row["group"])),
                    "words": f"{row['group']} on {pair['broker']} of {cluster['name']}",
                    "settings": of_pair | _of_group(row),
                }
                for row in pair["groups"]
                if row["rate"]
            ]
    return found


def _is_asked_of_brokers(name: str) -> bool:
    return name in KEYS and KEYS[name].side == "broker"


def _of_group(row: Json) -> dict[str, str]:
    values = {
        "rate": row["rate"],
        "queues": row["queues"],
        "members": row["members"],
        "backlog": row["lag"],
    }
    return {name: f"{value:.15g}" for name, value in values.items() if value}


def form() -> Json:
    """What the page needs: faults, sliders and flags with their defaults and meanings."""
    defaults = Settings().to_dict()
    return {
        "faults": [
            {"name": plan.name, "title": plan.title, "down_seconds": plan.down_seconds,
             "has_outage": plan.kills_master and plan.broker_uptime_seconds is None}
            for plan in FAULTS.values()
        ],
        "sliders": [
            {"name": name, "least": least, "most": most, "step": step,
             "value": defaults[name], "meaning": KEYS[name].meaning}
            for name, least, most, step in SLIDERS
        ],
        "flags": [
            {"name": key.name, "value": defaults[key.name], "meaning": key.meaning}
            for key in KEYS.values() if key.kind == "flag"
        ],
    }  # fmt: skip
