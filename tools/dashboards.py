"""Write the Grafana dashboards of the chart: ``python tools/dashboards.py``.

Each is a pure function of the tables below; a test compares the files with what comes out here.
Only metrics that something exports have a panel. No ids, no data source by name: the dashboard
asks which Prometheus to use.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).resolve().parent.parent / "charts" / "failback" / "dashboards"
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH, _HEIGHT, _COLUMNS = 12, 8, 24

Json = dict[str, Any]


@dataclass(frozen=True)
class Panel:
    """One chart: queries with their legends, and the unit in Grafana's word."""

    title: str
    description: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    kind: str = "timeseries"


@dataclass(frozen=True)
class Dashboard:
    """A page of panels. ``variables`` are label names, each with the metric that has it."""

    uid: str
    title: str
    variables: tuple[tuple[str, str], ...]
    panels: tuple[Panel, ...]


_BROKERS: Final = 'cluster=~"$cluster"'
_NODES: Final = (("cluster", "rocketmq_broker_start_time_seconds"),)
_NODE: Final = "{{node_id}} {{node_type}}"
_OBJECT: Final = 'namespace=~"$namespace"'

OFFSETS: Final = Dashboard(
    "failback-offset-health",
    "Failback / Offset health",
    (*_NODES, ("consumer_group", "rocketmq_consumer_lag_messages")),
    (
        Panel(
            "Age of the slave's offsets",
            "Time since a slave last fetched topics, groups and offsets from its master. What was "
            "consumed since comes again after a failover.",
            ((f"rocketmq_slave_metadata_sync_age_seconds{{{_BROKERS}}}", _NODE),),
            "s",
        ),
        Panel(
            "Age of the offset file",
            "Time since a broker wrote its consumer offsets to disk: what a kill costs.",
            ((f"rocketmq_offset_persist_age_seconds{{{_BROKERS}}}", _NODE),),
            "s",
        ),
        Panel(
            "Slave and master differ",
            "Messages between the offset tables of a slave and its master. Slave ahead is what a "
            "returned master is about to overwrite.",
            (
                (
                    f"rocketmq_slave_offset_divergence_messages{{{_BROKERS}}}",
                    "{{broker}} {{member}} {{consumer_group}} {{direction}}",
                ),
            ),
        ),
        Panel(
            "Uptime",
            "A master that is younger than 40 s may still overwrite the offsets of its slave.",
            ((f"time() - rocketmq_broker_start_time_seconds{{{_BROKERS}}}", _NODE),),
            "s",
        ),
        Panel(
            "Consumer lag",
            "Messages stored and not yet committed, as each broker counts them.",
            (
                (
                    f'rocketmq_consumer_lag_messages{{{_BROKERS},consumer_group=~"$consumer_group"}}',
                    "{{node_id}} {{consumer_group}} {{topic}}",
                ),
            ),
        ),
    ),
)

BROKERS: Final = Dashboard(
    "failback-broker-pair",
    "Failback / Broker pair",
    (*_NODES, ("topic", "rocketmq_messages_in_total")),
    (
        Panel(
            "Messages in",
            "Messages stored per second.",
            (
                (
                    "sum by (node_id, node_type) (rate(rocketmq_messages_in_total"
                    f'{{{_BROKERS},topic=~"$topic"}}[$__rate_interval]))',
                    _NODE,
                ),
            ),
            "ops",
        ),
        Panel(
            "Messages out",
            "Messages delivered per second: to whom the slave serves reads shows here.",
            (
                (
                    "sum by (node_id, node_type) (rate(rocketmq_messages_out_total"
                    f'{{{_BROKERS},topic=~"$topic"}}[$__rate_interval]))',
                    _NODE,
                ),
            ),
            "ops",
        ),
        Panel(
            "Not on disk yet",
            "Bytes of the log that are not synced.",
            ((f"rocketmq_storage_flush_behind_bytes{{{_BROKERS}}}", _NODE),),
            "bytes",
        ),
        Panel(
            "Not dispatched yet",
            "Bytes of the log that no consume queue shows.",
            ((f"rocketmq_storage_dispatch_behind_bytes{{{_BROKERS}}}", _NODE),),
            "bytes",
        ),
        Panel(
            "Log held",
            "Size of the log.",
            ((f"rocketmq_storage_size{{{_BROKERS}}}", _NODE),),
            "bytes",
        ),
        Panel(
            "Connections",
            "Producers and consumers by heartbeat.",
            (
                (f"rocketmq_producer_connections{{{_BROKERS}}}", "producers {{node_id}}"),
                (f"rocketmq_consumer_connections{{{_BROKERS}}}", "consumers {{node_id}}"),
            ),
        ),
        Panel(
            "Permission",
            "6 reads and writes, 4 reads only: a pair that drains.",
            ((f"rocketmq_broker_permission{{{_BROKERS}}}", _NODE),),
        ),
    ),
)

OPERATOR: Final = Dashboard(
    "failback-operator",
    "Failback / Operator",
    (("namespace", "failback_operator_pass_age_seconds"),),
    (
        Panel(
            "Passes",
            "Looks at a custom resource per second, by result.",
            (
                (
                    "sum by (kind, result) "
                    "(rate(failback_operator_passes_total[$__rate_interval]))",
                    "{{kind}} {{result}}",
                ),
            ),
            "ops",
        ),
        Panel(
            "Duration of a pass",
            "95th percentile.",
            (
                (
                    "histogram_quantile(0.95, sum by (le, kind) "
                    "(rate(failback_operator_pass_seconds_bucket[$__rate_interval])))",
                    "{{kind}}",
                ),
            ),
            "s",
        ),
        Panel(
            "Age of the last pass",
            "The oldest ten.",
            (
                (
                    f"topk(10, failback_operator_pass_age_seconds{{{_OBJECT}}})",
                    "{{kind}} {{namespace}}/{{name}}",
                ),
            ),
            "s",
        ),
        Panel(
            "Running operations",
            "One at a time for each cluster, with its step.",
            (
                (
                    f"failback_operator_operation_active{{{_OBJECT}}} == 1",
                    "{{namespace}}/{{name}} {{type}} {{step}}",
                ),
            ),
            kind="state-timeline",
        ),
        Panel(
            "Blocked by",
            "What an operation waits for.",
            (
                (
                    f"failback_operator_blocked{{{_OBJECT}}} == 1",
                    "{{namespace}}/{{name}} {{predicate}}",
                ),
            ),
            kind="state-timeline",
        ),
        Panel(
            "Writable pairs",
            "1 where a master takes messages.",
            (
                (
                    f"failback_operator_pair_writable{{{_OBJECT}}}",
                    "{{namespace}}/{{name}} {{pair}}",
                ),
            ),
            kind="state-timeline",
        ),
        Panel(
            "Masters of a pair",
            "More than 1 loses messages.",
            (
                (
                    f"failback_operator_pair_masters{{{_OBJECT}}}",
                    "{{namespace}}/{{name}} {{pair}}",
                ),
            ),
        ),
        Panel(
            "Slaves behind",
            "Bytes of the log that a slave has not got yet.",
            (
                (
                    f"failback_operator_slave_lag_bytes{{{_OBJECT}}}",
                    "{{namespace}}/{{name}} {{pair}} {{member}}",
                ),
            ),
            "bytes",
        ),
        Panel(
            "Requests to the API server",
            "By answer; at rest there are no writes.",
            (
                (
                    "sum by (verb, code) "
                    "(rate(failback_operator_api_requests_total[$__rate_interval]))",
                    "{{verb}} {{code}}",
                ),
            ),
            "ops",
        ),
        Panel(
            "Requests to brokers",
            "By result.",
            (
                (
                    "sum by (result) "
                    "(rate(failback_operator_admin_requests_total[$__rate_interval]))",
                    "{{result}}",
                ),
            ),
            "ops",
        ),
    ),
)

DASHBOARDS: Final = {
    "broker-pair.json": BROKERS,
    "offset-health.json": OFFSETS,
    "operator.json": OPERATOR,
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
        "panels": [_panel(number, panel) for number, panel in enumerate(dashboard.panels)],
    }
    return json.dumps(page, indent=1, sort_keys=True) + "\n"


def _data_source() -> Json:
    return {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
    }


def _variable(variable: tuple[str, str]) -> Json:
    label, metric = variable
    return {
        "name": label,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": f"label_values({metric}, {label})", "refId": label},
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
