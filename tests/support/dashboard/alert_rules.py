"""The alerts of the chart as its golden file has them, for promtool and for a real Prometheus.

``hurried`` divides every time of the rules by a factor, so that an experiment whose brokers run
that much faster meets the same proportions.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from tools.setup import SetupError
from tools.setup_prometheus import ensure_prometheus

from tests.support.processes.child_process import ROOT

GOLDEN = ROOT / "tests" / "data" / "charts" / "everything.yaml"
_DURATION = re.compile(r"(?<=[\[ :])(\d+)([smh])(?=[\]):]| >| or )")
"""Ranges, steps and offsets of an expression; plain seconds have no unit."""
_FOR = re.compile(r"(\d+)([smh])")
_SECONDS = {"s": 1, "m": 60, "h": 3600}
Rules = dict[str, Any]


@functools.cache
def prometheus_home() -> Path:
    """Return the folder with prometheus and promtool; skip the test where they can't be had."""
    try:
        return ensure_prometheus()
    except SetupError as error:
        pytest.skip(str(error))


def rules() -> Rules:
    """Return the spec of the chart's PrometheusRule."""
    documents = YAML(typ="safe").load_all(GOLDEN.read_text())
    found = [each for each in documents if each and each["kind"] == "PrometheusRule"]
    spec: Rules = found[0]["spec"]
    return spec


def alerts() -> dict[str, dict[str, Any]]:
    """Return every alert by its name."""
    return {rule["alert"]: rule for group in rules()["groups"] for rule in group["rules"]}


def hurried(factor: float, thresholds: Mapping[str, tuple[str, str]]) -> Rules:
    """Return the rules with all times divided by ``factor``, rounded up to milliseconds.

    Args:
        factor: Such as 10.
        thresholds: Alert to a text of its expression and what stands there instead: limits in
            seconds are plain numbers, which only the caller can tell from others, and messages
            and bytes that pile up in a scaled time are as many fewer.
    """
    spec = rules()
    for group in spec["groups"]:
        group["interval"] = "500ms"
        for rule in group["rules"]:
            rule["for"] = _FOR.sub(lambda found: _shorter(found, factor), rule["for"])
            rule["expr"] = _DURATION.sub(lambda found: _shorter(found, factor), rule["expr"])
            if rule["alert"] in thresholds:
                before, after = thresholds[rule["alert"]]
                assert before in rule["expr"], rule["expr"]
                rule["expr"] = rule["expr"].replace(before, after)
    return spec


def _shorter(found: re.Match[str], factor: float) -> str:
    seconds = int(found[1]) * _SECONDS[found[2]] / factor
    return f"{max(0, round(seconds * 1000))}ms"
