"""A small, complete report as the engines write it: one kill, one group, one queue."""

from __future__ import annotations

from typing import Any

from failback.analytics.report.compare import compare_reports
from failback.analytics.report.measures.point_rows import Point

SECOND = 1_000_000_000


def sample_report(group: str = "billing") -> dict[str, Any]:
    """Return a report of 1,000 messages of which 40 were re-consumed for one cause."""
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
            "roles": ["demo-0/0", "demo-0/1"],
            "image_digests": {},
            "slave_read_enable": True,
            "flush_interval_ms": 5000,
            "slave_sync_interval_ms": 10000,
            "client_commit_interval_ms": 5000,
            "switches": {"fail_inflight_on_eof": False},
        },
        "verdict": {
            "value": "Pass",
            "sentence": "Killing master of pair-0 for 50 s: 40 of 1000 messages re-consumed.",
            "reasons": [],
        },
        "checks": [
            {
                "id": "fault_proved",
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
                "victims": ["pair-0/0 127.0.0.1:10911"],
                "intended_ns": 30 * SECOND,
                "intended_end_ns": 80 * SECOND,
                "issued_ns": [30 * SECOND, 30 * SECOND + 1_000_000],
                "proof": {"ACCEPT": 81 * SECOND},
                "effect_ns": 30 * SECOND + 2_000_000,
                "heal_ns": 81 * SECOND,
                "proved": True,
                "peer_saw": "FIN",
                "down_seconds": 51.0,
            }
        ],
        "totals": counts(),
        "groups": [
            {
                **counts(),
                "group": group,
                "topic": "orders",
                "members": 1,
                "model": "push",
                "causes": {"ROLLBACK_SLAVE_ONLY_PROGRESS": 40},
                "causes_split": {
                    "ROLLBACK_SLAVE_ONLY_PROGRESS": {
                        "after_success": 38,
                        "before_success": 2,
                        "unknown_order": 0,
                    }
                },
                "report_groups": {"rollback": 40},
                "unattributed": 0,
                "partial_view": 0,
                "inherited": 0,
                "redelivery_counts": {"1": 960, "2": 40},
                "repeat_age_seconds": {
                    "p50": 31.0,
                    "p90": 40.0,
                    "p99": 43.0,
                    "max": 44.0,
                    "histogram": [
                        {"le": 17.782794, "count": 0},
                        {"le": 31.622777, "count": 20},
                        {"le": 56.234133, "count": 38},
                        {"le": 100.0, "count": 38},
                    ],
                },
                "dedupe": {
                    "by_seconds": [
                        {"window": 17.782794, "share": 0.0},
                        {"window": 31.622777, "share": 0.5263},
                        {"window": 56.234133, "share": 1.0},
                    ],
                    "by_keys": [
                        {"keys": 64, "share": 0.1, "error": 0.01},
                        {"keys": 1024, "share": 1.0, "error": 0.0},
                    ],
                },
                "blast": {"queues": 1, "queue_share": 0.25, "members": 1, "keys": 12},
            }
        ],
        "queues": [
            {
                "group": group,
                "broker": "demo-0",
                "topic": "orders",
                "qid": 0,
                "epochs": 1,
                "delivered": 290,
                "distinct": 250,
                "dup": 40,
                "report_groups": {"rollback": 40},
                "depth_ranges": [{"lo": 210, "hi": 250, "depth": 2, "epoch": 0}],
                "master_offset": 210,
                "slave_offset": 250,
                "safe_offset": 250,
                "windows": [
                    {
                        "lo": 210,
                        "hi": 250,
                        "size": 40,
                        "cause": "ROLLBACK_SLAVE_ONLY_PROGRESS",
                        "from_proc": 1,
                        "to_proc": 2,
                        "t_ns": 85 * SECOND,
                        "fid": "f1",
                    }
                ],
            }
        ],
        "queues_truncated": False,
        "rollbacks": [
            {
                "group": group,
                "broker": "demo-0",
                "topic": "orders",
                "qid": 0,
                "t_ns": 85 * SECOND,
                "start": 210,
                "src": "STORE",
                "src_bid": 0,
                "src_binc": 2,
                "committed": 250,
                "confirmed": 250,
                "processed": 250,
                "d_commit": 40,
                "d_proc": 40,
                "redelivered": 40,
                "age_seconds": 0.4,
                "explained_by": "file",
                "fid": "f1",
            }
        ],
        "offset_drops": [
            {
                "addr": "127.0.0.1:10911",
                "bid": 1,
                "source": "code43",
                "group": group,
                "topic": "orders",
                "qid": 0,
                "t_ns": 90 * SECOND,
                "from": 250,
                "to": 210,
                "label": "OVERWRITE",
            }
        ],
        "truncated": [],
        "resume_points": {
            "checked": 2,
            "explained": 2,
            "unknown": 0,
            "unexplained": [],
            "unexplained_count": 0,
        },
        "divergence": {"conflicts": 0, "truncation_events": [], "truncation_artefacts": 0},
        "window": {
            "zero_wall_ns": "1700000000000000000",
            "warmup_end_ns": 0,
            "first_fault_ns": 30 * SECOND,
            "last_heal_ns": 81 * SECOND,
            "drain_end_ns": 119 * SECOND,
            "end_ns": 120 * SECOND,
        },
        "clock": {
            "hosts": [
                {"host": "a", "offset_ns": 0, "error_ns": 0},
                {"host": "b", "offset_ns": 1_000_000, "error_ns": 400_000},
            ],
            "steps": 0,
            "ambiguous_dup": 0,
            "ambiguous_share": 0.0,
        },
        "loss": {
            "fates": {"OK": 1000, "STORE_LOST": 0},
            "groups": {group: {"OK": 1000, "STORE_LOST": 0}},
            "examples": {},
            "intervals": {},
        },
        "order": [],
        "rto": [
            {
                "fid": "f1",
                "broker": "demo-0",
                "produce_ms": 51200,
                "consume_ms": {"p50": 30100, "max": 32800},
                "second_stall_ms": 900,
                "queues_never": 0,
                "ttfr_kill_ms": 55000,
                "ttfr_accept_ms": 4000,
                "phases": {"accept": 81 * SECOND, "first_fresh_slave_sync": None},
                "phase_rows": {},
            }
        ],
        "bounds": [
            {
                "fid": "f1",
                "group": group,
                "mechanism": "rows 1+2+3+6",
                "formula": "R·(D + I_b + c) + Q·W",
                "inputs": {"R": 50.0, "D": 50.0},
                "bound": 3000.0,
                "observed": 40,
                "ratio": 0.0133,
                "exceeded": False,
            }
        ],
        "handover": [],
        "prediction": [
            {
                "fid": "f1",
                "group": group,
                "p5": 20,
                "p50": 45,
                "p95": 90,
                "max": 120,
                "worst": 400,
                "observed": 40,
                "inside": True,
                "validated": False,
            }
        ],
        "exposure": {group: {"p50": 12, "max": 40, "at_kill": 20, "broker": "demo-0"}},
        "knobs": [
            {
                "name": "flushConsumerOffsetInterval",
                "from": 5000.0,
                "to": 1000,
                "fault": "f1",
                "predicted_reduction": 21.5,
                "worst_reduction": 200,
                "cost": "+0.8 writes/s of consumerOffset.json at each broker",
            }
        ],
        "notes": {},
        "producer": {
            "attempts": 1001,
            "timeouts": 1,
            "conn_errors": 0,
            "degraded": 0,
            "resends": 1,
            "latency_ms": {"p50": 1.5, "p99": 3.0, "p999": 4.0, "max": 3000.0},
        },
        "compare": None,
        "quality": {
            "binc_unknown": 0,
            "sampler_max_gap_ms": 1000,
            "runs_per_row": 0.004,
            "dropped_rows": {"et_before_bt": 0},
            "unknown_values": 0,
            "foreign_rows": 0,
            "trace_missing_end": None,
        },
        "timings": {"total": 0.5},
    }


def compared_report() -> dict[str, Any]:
    """The same, beside a second arm with nothing twice."""
    report, other = sample_report(), sample_report()
    other |= {"arm": "stay", "run": "demo-stay-0-0badcafe"}
    other["totals"] |= {"dup": 0, "dup_ratio": 0.0}
    report["compare"] = compare_reports([report], [other])
    return report


def counts() -> dict[str, Any]:
    """What ``totals`` and each group have in common."""
    return {
        "produced": 1000,
        "acknowledged": 1000,
        "ambiguous_sends": 0,
        "delivered": 1040,
        "distinct": 1000,
        "primary": 1000,
        "retry": 0,
        "dup": 40,
        "dup_after_success": 38,
        "dup_before_success": 2,
        "dup_unknown_order": 0,
        "dup_messages": 40,
        "lost": 0,
        "skipped": 0,
        "store_lost": 0,
        "ooo_first": 0,
        "ooo_replay": 0,
        "max_redelivery": 2,
        "abandoned": 0,
        "dup_ratio": 0.04,
        "dup_msg_ratio": 0.04,
        "amplification": 1.04,
        "wasted_seconds": 0.4,
        "handler_seconds": 10.4,
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
        Point("dup_by_group", group, None, None, None, 86 * SECOND, 30.0, "rollback"),
        Point("dup_by_group", group, None, None, None, 87 * SECOND, 10.0, "rollback"),
        Point("dup_by_queue", *queue, 86 * SECOND, 30.0, None),
        Point("dup_by_queue", *queue, 87 * SECOND, 10.0, None),
        Point("exposure", group, "demo-0", None, None, SECOND, 10.0, None),
        Point("exposure", group, "demo-0", None, None, 29 * SECOND, 40.0, None),
        Point("event", None, None, None, None, 33 * SECOND, 0.0, "slave serves"),
    ]
