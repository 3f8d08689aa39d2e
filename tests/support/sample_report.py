"""A small, complete report as the engines write it: one kill, one group, one queue."""

from __future__ import annotations

from typing import Any

from failback.analytics.figure_data import Point

SECOND = 1_000_000_000


def sample_report(group: str = "billing") -> dict[str, Any]:
    """Return a report of 1,000 messages of which 40 came again for one cause."""
    return {
        "schema": "failback.report/1",
        "run": "demo-handover-0-0badcafe",
        "experiment": "demo",
        "arm": "handover",
        "repetition": 0,
        "seed": "42",
        "created": "2026-11-21T12:00:00Z",
        "engine": "local",
        "failback_version": "0.1.0",
        "evidence": {
            "run_sha256": "ab" * 32,
            "manifest": "manifest.json",
            "segments": 3,
            "rows": {"deliver": 1040, "produce": 1000},
            "torn": 0,
            "gaps": [],
        },
        "source": {"deliver": "log", "rule_set": "4.9.8", "time_scale": 1.0, "log_mode": "full"},
        "system": {
            "engine": "failback",
            "version": "0.1.0",
            "topology": {"pairs": [{"name": "pair-0", "broker": "demo-0"}]},
            "slave_read_enable": True,
            "flush_interval_ms": 5000,
            "slave_sync_interval_ms": 10000,
            "client_commit_interval_ms": 5000,
            "switches": {"fail_inflight_on_eof": False},
        },
        "verdict": {
            "value": "Pass",
            "sentence": "Killing master of pair-0 for 50 s re-delivered 40 of 1000 messages.",
            "reasons": [],
        },
        "checks": [
            {
                "id": "fault_honest",
                "title": "the kill was proved",
                "value": "Pass",
                "expected": "signal 9",
                "observed": "signal 9",
                "unit": "",
                "evidence": [],
            }
        ],
        "faults": [
            {
                "fid": "f1",
                "name": "kill",
                "kind": "KILL",
                "intended_ns": 30 * SECOND,
                "effect_ns": 30 * SECOND + 2_000_000,
                "heal_ns": 81 * SECOND,
                "honest": True,
                "peer_saw": "FIN",
                "down_seconds": 51.0,
            }
        ],
        "totals": {
            "acknowledged": 1000,
            "delivered": 1040,
            "distinct": 1000,
            "dup": 40,
            "dup_ratio": 0.04,
            "dup_after_success": 38,
            "lost": 0,
            "wasted_seconds": 0.4,
        },
        "groups": [
            {
                "group": group,
                "topic": "orders",
                "causes": {"ROLLBACK_SLAVE_ONLY_PROGRESS": 40},
                "unattributed": 0,
                "wasted_seconds": 0.4,
                "max_redelivery": 2,
                "repeat_age_seconds": {"p50": 31.0, "max": 44.0},
            }
        ],
        "queues": [
            {
                "group": group,
                "broker": "demo-0",
                "topic": "orders",
                "qid": 0,
                "dup": 40,
                "master_offset": 210,
                "slave_offset": 250,
                "safe_offset": 250,
                "windows": [
                    {
                        "lo": 210,
                        "hi": 250,
                        "size": 40,
                        "cause": "ROLLBACK_SLAVE_ONLY_PROGRESS",
                        "t_ns": 85 * SECOND,
                    }
                ],
            }
        ],
        "rollbacks": [
            {
                "group": group,
                "broker": "demo-0",
                "topic": "orders",
                "qid": 0,
                "t_ns": 85 * SECOND,
                "start": 210,
                "src_bid": 0,
                "committed": 250,
                "processed": 250,
                "d_commit": 40,
                "redelivered": 40,
            }
        ],
        "offset_drops": [
            {
                "group": group,
                "topic": "orders",
                "qid": 0,
                "t_ns": 90 * SECOND,
                "from": 250,
                "to": 210,
                "label": "OVERWRITE",
            }
        ],
        "loss": {"fates": {"OK": 1000}},
        "order": [],
        "rto": [
            {
                "fid": "f1",
                "broker": "demo-0",
                "produce_ms": 51200,
                "consume_ms": {"p50": 30100, "max": 32800},
                "ttfr_kill_ms": 55000,
                "phases": {"accept": 81 * SECOND, "first_fresh_slave_sync": None},
            }
        ],
        "bounds": [
            {
                "fid": "f1",
                "group": group,
                "mechanism": "rows 1+2+3+6",
                "formula": "R·(D + I_b + c) + Q·W",
                "bound": 3000.0,
                "observed": 40,
                "exceeded": False,
            }
        ],
    }


def sample_points(group: str = "billing") -> list[Point]:
    """Return one point of each kind for the queue of :func:`sample_report`."""
    queue = (group, "demo-0", "orders", 0)
    return [
        Point("produce_rate", None, None, None, None, SECOND, 400.0, None),
        Point("deliver_rate", None, None, None, None, SECOND, 390.0, None),
        Point("send_latency", None, None, None, None, SECOND, 1.5, "OK"),
        Point("send_latency", None, None, None, None, 31 * SECOND, 3000.0, "TIMEOUT"),
        Point("master_table", *queue, SECOND, 100.0, None),
        Point("slave_table", *queue, SECOND, 90.0, None),
        Point("event", None, None, None, None, 33 * SECOND, 0.0, "slave serves"),
    ]
