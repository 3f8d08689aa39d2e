"""What each process of the workload has to do, as plain data for its plan file. Pure."""

from __future__ import annotations

from typing import Any

from failback.chaos.experiment.model import Group, TopicLoad, Workload


def producer_plan(workload: Workload, index: int, seed: int, time_scale: float) -> dict[str, Any]:
    """Return the plan of the producer with this number."""
    return {
        "index": index,
        "producers": workload.producers,
        "send_timeout_ms": workload.send_timeout_ms,
        "retries": workload.retries,
        "topics": [_topic_plan(topic, time_scale) for topic in workload.topics],
        "seed": seed,
    }


def consumer_plan(group: Group, member: int, seed: int, delay_seconds: float) -> dict[str, Any]:
    """Return the plan of one member of a group; it starts after ``delay_seconds``."""
    return {
        "group": group.name,
        "topic": group.topic,
        "member": member,
        "message_model": group.message_model,
        "consume_from": group.consume_from,
        "threads": group.threads,
        "pull_threshold_for_queue": group.pull_threshold_for_queue,
        "max_reconsume_times": group.max_reconsume_times,
        "handler": {
            "mean_ms": group.handler.mean_ms,
            "jitter_ms": group.handler.jitter_ms,
            "fail_ratio": group.handler.fail_ratio,
        },
        "start_phase_ms": delay_seconds * 1000,
        "seed": seed,
    }


def _topic_plan(topic: TopicLoad, time_scale: float) -> dict[str, Any]:
    return {
        "name": topic.name,
        "queues": topic.queues,
        "rate_per_second": topic.rate_per_second,
        "burst_every_seconds": topic.burst.every_seconds if topic.burst else None,
        "burst_factor": topic.burst.factor if topic.burst else None,
        "body_bytes": topic.body_bytes,
        "keys": topic.keys,
        "ordered": topic.ordered,
        "delay_levels": dict(topic.delay_levels),
        "resend_ratio": topic.resend_ratio,
        "resend_failed": topic.resend_failed,
        # A backlog lasts for an outage; a shorter outage needs less of it.
        "preload_messages": round(topic.preload_messages * time_scale),
    }
