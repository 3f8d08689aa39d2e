"""The operator's own metrics, prefix ``failback_operator_``, in one registry per process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from failback.client.admin.queue_offsets import Divergence
from failback.protocol.metric_families import (
    DIVERGENCE,
    MAX_SERIES,
    OTHER,
    START_TIME,
    SYNC_AGE,
    Family,
)

_OBJECT: Final = ("kind", "namespace", "name")
_PREFIX: Final = "failback_operator_"
Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BrokerFigures:
    """What the operator says of a broker under the names of RocketMQ's metrics.

    ``labels`` are cluster, node_type, node_id and broker.
    """

    labels: tuple[str, str, str, str]
    start_seconds: float | None = None
    """Unix time; brokers of engine failback say it themselves."""
    sync_age_seconds: float | None = None
    divergence: Mapping[str, Divergence] = field(default_factory=dict)
    """By group, of a slave."""


class Metrics:
    """What the operator counts; the owner of every label set of an object."""

    def __init__(self, *, version: str, kopf: str, kubernetes: str) -> None:
        self.registry = CollectorRegistry()
        self.families: list[Family] = []
        """All that is exported, for the page that lists it."""
        self._passes = self._counter("passes", "Passes.", "kind", "result")
        self._pass_seconds = self._histogram("pass_seconds", "Duration of a pass.", "kind")
        self._pass_age = self._gauge("pass_age_seconds", "Age of the last pass.", *_OBJECT)
        self._late = self._gauge(
            "pass_late_seconds", "By how much a pass is late that should have ended.", *_OBJECT
        )
        self.late: Callable[[], Mapping[tuple[str, str, str], float]] = dict
        """Kind, namespace and name → seconds; only of passes that are late."""
        self._api = self._counter("api_requests", "API requests.", "verb", "resource", "code")
        self._api_seconds = self._histogram("api_request_seconds", "API request.", "verb")
        self._status_writes = self._counter("status_writes", "Writes of a status.", "kind")
        self._admin = self._counter("admin_requests", "Remoting requests.", "code", "result")
        self._admin_seconds = self._histogram("admin_request_seconds", "Remoting request.", "code")
        self._condition = self._gauge(
            "condition", "1 for the present status of a condition.", *_OBJECT, "type", "status"
        )
        self._operation = self._gauge(
            "operation_active", "The running operation.", "namespace", "name", "type", "step"
        )
        self._operation_seconds = self._histogram("operation_seconds", "Operations.", "type")
        self._blocked = self._gauge(
            "blocked", "Predicates waited for.", "namespace", "name", "predicate"
        )
        self._restarts = self._counter(
            "pod_restarts", "Pods replaced by the operator.", "namespace", "name", "reason"
        )
        self._config = self._counter("config_updates", "Live changes.", "result")
        self._writable = self._gauge(
            "pair_writable", "Whether a pair takes writes.", "namespace", "name", "pair"
        )
        self._masters = self._gauge(
            "pair_masters", "Who acts as master of a pair.", "namespace", "name", "pair"
        )
        member = ("namespace", "name", "pair", "member")
        self._lag = self._gauge("slave_lag_bytes", "Bytes behind the master.", *member)
        self._ahead = self._gauge(
            "slave_ahead_messages", "Offsets of a slave above its master's.", *member
        )
        self._diverged = self._gauge(
            "slave_diverged",
            "1 for a slave that waits because its log is not its master's.",
            *member,
        )
        self._outage = self._histogram(
            "role_switch_outage_seconds", "Outage by a role switch.", "mode", "side"
        )
        self._waiting = self._gauge(
            "role_switch_waiting",
            "1 for what a RoleSwitch that has not begun waits for.",
            "namespace",
            "name",
            "mode",
            "predicate",
        )
        self._conflicts = self._counter("field_conflicts", "Foreign field managers.", "manager")
        self._divergence = self._shared(_in_namespace(DIVERGENCE))
        self._start_time = self._shared(_in_namespace(START_TIME))
        self._sync_age = self._shared(_in_namespace(SYNC_AGE))
        self._run = self._shared(
            Family(
                "failback_run_active",
                "gauge",
                ("namespace", "run", "experiment", "cluster"),
                "1 while a Job of a ChaosExperiment is under way.",
            )
        )
        self._info = self._gauge("info", "Versions.", "version", "kopf", "kubernetes")
        self._info.labels(version, kopf, kubernetes).set(1)
        self._owned: dict[Labels, set[tuple[Gauge, Labels]]] = {}
        self._last_pass: dict[Labels, float] = {}

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        self.families.append(Family(f"{_PREFIX}{name}_total", "counter", labels, text))
        return Counter(_PREFIX + name, text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return self._shared(Family(_PREFIX + name, "gauge", labels, text))

    def _histogram(self, name: str, text: str, *labels: str) -> Histogram:
        self.families.append(Family(_PREFIX + name, "histogram", labels, text))
        return Histogram(_PREFIX + name, text, labels, registry=self.registry)

    def _shared(self, family: Family) -> Gauge:
        """A gauge whose name has no prefix of ours, because others export it too."""
        self.families.append(family)
        return Gauge(family.name, family.text, family.labels, registry=self.registry)

    def text(self) -> bytes:
        """Return everything in Prometheus' text format."""
        now = time.monotonic()
        for labels, at in self._last_pass.items():
            self._pass_age.labels(*labels).set(now - at)
        self._late.clear()
        for labels, seconds in self.late().items():
            self._late.labels(*labels).set(seconds)
        return generate_latest(self.registry)

    # --- counting -----------------------------------------------------------------------------

    def api_request(self, verb: str, resource: str, code: str, seconds: float) -> None:
        """Count a request to the API server."""
        self._api.labels(verb, resource, code).inc()
        self._api_seconds.labels(verb).observe(seconds)

    def admin_request(self, code: int, result: str, seconds: float) -> None:
        """Count a remoting request; ``result`` is ok, error or timeout."""
        self._admin.labels(str(code), result).inc()
        self._admin_seconds.labels(str(code)).observe(seconds)

    def status_write(self, kind: str) -> None:
        """Count a write of a status."""
        self._status_writes.labels(kind).inc()

    def pod_restart(self, namespace: str, name: str, reason: str) -> None:
        """Count a pod that the operator replaced."""
        self._restarts.labels(namespace, name, reason).inc()

    def config_update(self, result: str) -> None:
        """Count a live change; ``result`` is applied, rejected or drift."""
        self._config.labels(result).inc()

    def field_conflict(self, manager: str) -> None:
        """Count a conflict with another field manager."""
        self._conflicts.labels(manager).inc()

    def operation_ended(self, kind: str, seconds: float) -> None:
        """Record how long an operation took."""
        self._operation_seconds.labels(kind).observe(max(0.0, seconds))

    def role_switch_outage(self, mode: str, side: str, seconds: float) -> None:
        """Record an outage of a role switch; ``side`` is read or write."""
        self._outage.labels(mode, side).observe(max(0.0, seconds))

    def passed(self, kind: str, namespace: str, name: str, result: str, seconds: float) -> None:
        """Record a finished pass; ``result`` is ok, unchanged, failed or paused."""
        self._passes.labels(kind, result).inc()
        self._pass_seconds.labels(kind).observe(seconds)
        self._last_pass[kind, namespace, name] = time.monotonic()

    # --- gauges of one object -----------------------------------------------------------------

    def show(
        self,
        kind: str,
        namespace: str,
        name: str,
        status: Mapping[str, Any],
        members: Iterable[tuple[int, int, int | None, int | None]] = (),
        masters: Mapping[int, int] | None = None,
        brokers: Iterable[BrokerFigures] = (),
        cluster: str = "",
        mode: str = "",
    ) -> None:
        """Set all gauges of one object from its status; label sets of before go.

        Args:
            members: Pair, ordinal, lag in bytes and messages ahead of each slave.
            masters: Pair → how many act as its master.
            brokers: What is shown under the names of the brokers' own metrics.
            cluster: Of a ChaosExperiment, the cluster that it is about.
            mode: Of a RoleSwitch.
        """
        found: dict[tuple[Gauge, Labels], float] = {}
        labels: Labels
        for item in status.get("conditions") or ():
            labels = (kind, namespace, name, item["type"], item["status"])
            found[self._condition, labels] = 1
        current = status.get("currentOperation")
        others = status.get("otherOperations") or ()
        for operation in (*([current] if current else ()), *others):
            labels = (namespace, name, operation["type"], operation["step"])
            found[self._operation, labels] = 1
            for predicate in operation.get("blockedBy") or ():
                found[self._blocked, (namespace, name, predicate)] = 1
        for pair in (status.get("pairs") or ()) if kind == "BrokerCluster" else ():
            labels = (namespace, name, str(pair["index"]))
            found[self._writable, labels] = 1 if pair.get("writable") else 0
            for member in pair.get("members") or ():
                if member.get("prefix"):
                    diverged = int(member["prefix"] == "Diverged")
                    found[self._diverged, (*labels, str(member["ordinal"]))] = diverged
        for pair, count in (masters or {}).items():
            found[self._masters, (namespace, name, str(pair))] = count
        for pair, ordinal, lag, ahead in members:
            labels = (namespace, name, str(pair), str(ordinal))
            if lag is not None:
                found[self._lag, labels] = lag
            if ahead is not None:
                found[self._ahead, labels] = ahead
        for broker in brokers:
            self._add_broker(found, namespace, broker)
        if kind == "ChaosExperiment" and status.get("activeArm"):
            run = f"{name}-{status['activeArm']}-{status.get('activeRepetition', 0)}"
            found[self._run, (namespace, run, name, cluster)] = 1
        if kind == "RoleSwitch" and status.get("phase") == "Pending":
            for predicate in status.get("blockedBy") or ():
                found[self._waiting, (namespace, name, mode, predicate)] = 1
        self._replace((kind, namespace, name), found)

    def _add_broker(
        self, found: dict[tuple[Gauge, Labels], float], namespace: str, broker: BrokerFigures
    ) -> None:
        if broker.start_seconds is not None:
            found[self._start_time, (namespace, *broker.labels)] = broker.start_seconds
        if broker.sync_age_seconds is not None:
            found[self._sync_age, (namespace, *broker.labels)] = broker.sync_age_seconds
        cluster, _, member, pair = broker.labels
        for place, (group, distance) in enumerate(sorted(broker.divergence.items())):
            where = (namespace, cluster, pair, member, group if place < MAX_SERIES else OTHER)
            for direction in ("slave_ahead", "master_ahead"):
                labels = (*where, direction)
                before = found.get((self._divergence, labels), 0.0)
                found[self._divergence, labels] = before + getattr(distance, direction)

    def forget(self, kind: str, namespace: str, name: str) -> None:
        """Remove everything that is labelled with an object that is gone."""
        self._replace((kind, namespace, name), {})
        self._owned.pop((kind, namespace, name), None)
        if self._last_pass.pop((kind, namespace, name), None) is not None:
            _remove(self._pass_age, (kind, namespace, name))

    def _replace(self, owner: Labels, found: Mapping[tuple[Gauge, Labels], float]) -> None:
        before = self._owned.get(owner, set())
        for gauge, labels in before - set(found):
            _remove(gauge, labels)
        for (gauge, labels), value in found.items():
            gauge.labels(*labels).set(value)
        self._owned[owner] = set(found)


def _in_namespace(family: Family) -> Family:
    """The family with the namespace of the cluster, which a broker's scrape has by its pod."""
    return family._replace(labels=("namespace", *family.labels))


def _remove(gauge: Gauge, labels: Labels) -> None:
    try:
        gauge.remove(*labels)
    except KeyError:
        return  # never shown
