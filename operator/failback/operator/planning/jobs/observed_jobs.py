"""What a pass over an experiment or a report sees. Pure data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from failback.operator.planning.observed.observed import Object


@dataclass(frozen=True, slots=True)
class ObservedExperiment:
    """Everything one pass over a ChaosExperiment sees."""

    at: float
    """Unix time of the pass."""
    namespace_labels: Mapping[str, str] | None = None
    """Labels of the namespace; ``None`` while unknown."""
    cluster: Object | None = None
    """The BrokerCluster; ``None`` when there is none."""
    config_maps: Mapping[str, Object] = field(default_factory=dict)
    """The cluster's ConfigMaps by name, for the overlay of an arm."""
    broker_pods: Sequence[Object] = ()
    """Pods of the cluster's brokers, for their liveness probes."""
    lease: Object | None = None
    """Lease ``failback-<cluster>-chaos``."""
    jobs: Mapping[str, Object] = field(default_factory=dict)
    """Jobs that the experiment owns, by name."""
    settings: Object | None = None
    """The ConfigMap that its Jobs read."""
    pods: Mapping[str, Object] = field(default_factory=dict)
    """Newest pod of each of those Jobs, by the Job's name."""
    claim: Object | None = None
    """The claim of the run volume."""
    progress: Mapping[str, Any] | None = None
    """Answer of the running Job to ``GET /run``; ``None`` when it did not answer."""


@dataclass(frozen=True, slots=True)
class ObservedReport:
    """Everything one pass over a ReconsumptionReport sees."""

    at: float
    experiment: Object | None = None
    """The ChaosExperiment that it refers to; ``None`` when there is none."""
    job: Object | None = None
    pod: Object | None = None
    """Newest pod of the Job."""
    application: Object | None = None
    """The SparkApplication."""
    claim: Object | None = None
    """The claim that holds the runs."""
    served_kinds: frozenset[str] = frozenset()
    """Optional kinds that the API server serves."""
