"""Write docs/reference/metrics.md: ``python tools/metrics_page.py``.

The tables come from the same families that the components export from; a test compares.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from failback.analytics.collector.metrics import FAMILIES as COLLECTOR
from failback.analytics.dashboard.http.metrics import FAMILIES as DASHBOARD
from failback.analytics.exporter.families import KNOWN, OURS, SHARED
from failback.operator.metrics import Metrics
from failback.protocol.metric_families import BROKER, CARRIED, MAX_SERIES, NAMESRV, Family

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "reference" / "metrics.md"
_HEAD: Final = f"""# Metrics

Made by `python tools/metrics_page.py`. Names are RocketMQ 5.x's where the meaning is the same, and
have no prefix of ours where others could export them too. Alerts on them have
[runbooks](../runbooks/README.md); the dashboards are in `charts/failback/dashboards`.

| who | where |
|---|---|
| our brokers | `http://BROKER:8088/metrics` (`failbackHttpPort`) |
| sidecar `carry` of Apache's brokers | `http://POD:8088/metrics` |
| our name servers | `http://NAMESRV:PORT/metrics` (`failbackHttpPort` of its file) |
| operator | `:8080/metrics` |
| collector | `/metrics` with a token of scope `read`, or `--metrics-port` without |
| dashboard | `--metrics-port`; in the chart port 8091 of the Service `failback-dashboard` |
| exporter | `failback exporter --namesrv HOST:PORT`, `http://127.0.0.1:5557/metrics` |
| exporter of the chart (`exporters`) | port 5557 of the Service `FULLNAME-exporter-NAME` |

The exporter asks any cluster, Apache's or ours, by the admin protocol every `--interval` seconds; a
scrape asks nobody. Scrape our brokers themselves **or** through the exporter, not both: the names
are the same. The exporter cannot see some things that a broker counts (messages in flight, the age
of the offset file unless `--offset-file BROKER-ID=PATH` shows it; producers where a broker does not
know request 328), and to it a reset looks like a client's commit. In return it sees what a broker
without a slave cannot: that offsets were lost by a restart. What it calls
`rocketmq_messages_out_total` is what groups committed, repeats counted again. A broker that does
not answer has `failback_exporter_up` 0; one that no name server lists any more keeps it an hour.

Of the names of rocketmq-exporter those that need a question per topic or group (latency by store
time, bytes per second, messages sent back) are asked for at most {MAX_SERIES} each: the groups that
are furthest behind, topics that took messages within two minutes, groups with members. Rates are
over half a minute or the time between two surveys, whichever is longer.

A group that broadcasts has no lag, latency and exposure, also while none of its members is online:
what brokers hold of it is from before. Of a group or topic that was deleted nothing is shown from
the next look on. Lag counts what is stored: what has expired, and how far an offset lies beyond a
queue's end, have metrics of their own, which are there only while they are above 0. Brokers of ours
show no lag of such groups either.

With `--runs FOLDER` the exporter shows run folders as well: which runs go on, which faults are
open, and what reports found. A run of another machine or pod goes on while its files change, and
for a minute after that. Per metric and cluster at most {MAX_SERIES} pairs of topic and group
have lines of their own, the first that came; the rest is added up under `other`. Single queues are
shown only of topics named by `--queue-metrics TOPIC`. `rocketmq_reconsume_exposure_messages` is the
figure that the [dashboard](../howto/dashboard.md) and `explain-offset --live` show: what the
master's offset file, which `--offset-file` names, or the slave's table lacks of what is done.
Without the file its age at most and the group's rate stand for it.
"""
_RUNTIME: Final = "rocketmq_brokeruntime_"
_TITLES: Final = {
    "broker": "Our brokers",
    "namesrv": "Our name servers",
    "carry": "The sidecar of Apache's brokers",
    "shared": "The exporter, under the names of the brokers",
    "exporter": "The exporter, beside them",
    "known": "The exporter, under the names of rocketmq-exporter",
    "operator": "The operator",
    "collector": "The collector",
    "dashboard": "The dashboard",
}


def components() -> dict[str, Sequence[Family]]:
    """Return all families by who exports them."""
    return {
        "broker": BROKER,
        "namesrv": NAMESRV,
        "carry": (CARRIED,),
        "shared": SHARED,
        "exporter": OURS,
        "known": KNOWN,
        "operator": Metrics(version="", kopf="", kubernetes="").families,
        "collector": COLLECTOR,
        "dashboard": DASHBOARD,
    }


def render() -> str:
    """Return the page."""
    parts = [_HEAD]
    for name, families in components().items():
        rows = [
            f"| `{each.name}` | {each.kind} | {', '.join(each.labels) or '-'} | {each.text} |"
            for each in merged(families)
        ]
        table = ["| metric | type | labels | meaning |", "|---|---|---|---|", *rows]
        parts.append("\n".join([f"## {_TITLES[name]}", "", *table, ""]))
    return "\n".join(parts)


def merged(families: Sequence[Family]) -> list[Family]:
    """Return the families with those of the broker's runtime information as one."""
    runtime = [each for each in families if each.name.startswith(_RUNTIME)]
    if not runtime:
        return list(families)
    text = f"{len(runtime)} gauges copied from the broker's runtime information (request 28); "
    text += "names as in rocketmq-exporter."
    one = Family(f"{_RUNTIME}*", runtime[0].kind, runtime[0].labels, text)
    return [*(each for each in families if each not in runtime), one]


def main() -> int:
    PAGE.write_text(render(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
