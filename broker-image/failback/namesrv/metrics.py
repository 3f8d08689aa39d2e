"""What a name server exports to Prometheus. Pure, but for the client library."""

from __future__ import annotations

from collections.abc import Mapping

from failback.protocol.metric_families import (
    NAMESRV_BROKERS,
    NAMESRV_CONNECTIONS,
    NAMESRV_REFUSED,
    NAMESRV_TOPICS,
)


def render(*, connections: int, brokers: int, topics: int, refused: Mapping[str, int]) -> bytes:
    """Return the text format; ``refused`` is by bound."""
    # A name server that nobody scrapes does not load the library.
    from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    for family, value in (
        (NAMESRV_CONNECTIONS, connections),
        (NAMESRV_BROKERS, brokers),
        (NAMESRV_TOPICS, topics),
    ):
        Gauge(family.name, family.text, registry=registry).set(value)
    counter = Counter(
        NAMESRV_REFUSED.name, NAMESRV_REFUSED.text, NAMESRV_REFUSED.labels, registry=registry
    )
    for bound, count in refused.items():
        counter.labels(bound).inc(count)
    lines = generate_latest(registry).splitlines(keepends=True)
    return b"".join(line for line in lines if b"_created" not in line)
