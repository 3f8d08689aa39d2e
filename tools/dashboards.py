"""Write the Grafana dashboards of the chart: ``python tools/dashboards.py``.

Each is a pure function of the tables of tools/dashboard_pages.py; a test compares the files with
what comes out here. No ids, no data source by name: the dashboard
asks which Prometheus to use.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from tools.dashboard_pages import (  # noqa: E402 - a script sees tools/ only
    BROKERS,
    INGEST,
    OFFSETS,
    OPERATOR,
    RECONSUMPTION,
    Dashboard,
    Panel,
)

FOLDER: Final = ROOT / "charts" / "failback" / "dashboards"
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH, _HEIGHT, _COLUMNS = 12, 8, 24

Json = dict[str, Any]


DASHBOARDS: Final = {
    "broker-pair.json": BROKERS,
    "ingest.json": INGEST,
    "offset-health.json": OFFSETS,
    "operator.json": OPERATOR,
    "reconsumption.json": RECONSUMPTION,
}


def render(dashboard: Dashboard) -> str:
    """Return the dashboard as Grafana reads it."""
    page = {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "tags": ["failback"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "templating": {"list": [_data_source(), *map(_variable, dashboard.variables)]},
        "annotations": {"list": [_FAULTS]},
        "panels": [_panel(number, panel) for number, panel in enumerate(dashboard.panels)],
    }
    return json.dumps(page, indent=1, sort_keys=True) + "\n"


_FAULTS: Final[Json] = {
    "name": "Faults",
    "datasource": _SOURCE,
    "enable": True,
    "iconColor": "red",
    "expr": "failback_fault_active == 1",
    "step": "5s",
    "titleFormat": "{{fault}}",
    "textFormat": "{{target}} of {{run}}",
    "tagKeys": "run",
}
"""Faults of experiments as regions over every chart."""


def _data_source() -> Json:
    return {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
    }


def _variable(variable: tuple[str, str, str]) -> Json:
    name, metric, label = variable
    return {
        "name": name,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": f"label_values({metric}, {label})", "refId": name},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _panel(number: int, panel: Panel) -> Json:
    per_row = _COLUMNS // _WIDTH
    return {
        "title": panel.title,
        "description": panel.description,
        "type": panel.kind,
        "datasource": _SOURCE,
        "gridPos": {
            "x": number % per_row * _WIDTH,
            "y": number // per_row * _HEIGHT,
            "w": _WIDTH,
            "h": _HEIGHT,
        },
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + place), "expr": query, "legendFormat": legend}
            for place, (query, legend) in enumerate(panel.queries)
        ],
    }


def main() -> int:
    FOLDER.mkdir(exist_ok=True)
    for name, dashboard in DASHBOARDS.items():
        (FOLDER / name).write_text(render(dashboard), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
