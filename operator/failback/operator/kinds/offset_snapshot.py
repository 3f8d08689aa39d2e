"""OffsetSnapshot: consumer offsets of a cluster, kept as objects and given back on request."""

from __future__ import annotations

from typing import ClassVar, Final, Literal

from pydantic import Field

from failback.operator.kinds.base import CommonStatus, Model, Named, Resource, Status, Word

MAX_KEPT: Final = 32
LATEST: Final = "latest"


class OffsetRestore(Model):
    """Offsets that go back to the brokers: previewed first, written once that is confirmed."""

    snapshot: str = Field(
        default=LATEST, min_length=1, max_length=32, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]*$"
    )
    """Name of one of status.snapshots, or latest."""
    groups: list[Word] = Field(default=["*"], min_length=1, max_length=64)
    """Groups whose offsets go back, or * for all that the snapshot has."""
    online: bool = False
    """Whether groups with running members are written too. Their members keep what they have in
    memory and store that again; who takes a queue next starts from what is stored."""
    confirm: str | None = Field(
        default=None, min_length=1, max_length=32, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]*$"
    )
    """status.restore.id of the preview that is to be carried out. Each is carried out once."""


class OffsetSnapshotSpec(Model):
    """Which offsets are kept, how often, and which go back."""

    cluster_ref: Named
    """The BrokerCluster of this namespace. Immutable."""
    groups: list[Word] = Field(default=["*"], min_length=1, max_length=64)
    """Consumer groups whose offsets are kept, or * for all."""
    every: str | None = Field(default=None, max_length=8, pattern=r"^[1-9][0-9]{0,4}(m|h|d)$")
    """Time between two snapshots, such as 30m, 6h or 1d. Unset: one, when this object is made."""
    keep: int = Field(default=7, ge=1, le=MAX_KEPT)
    """How many snapshots are kept; an older one is deleted."""
    restore: OffsetRestore | None = None
    """Offsets that go back to the brokers. Without it nothing is ever written to a broker."""


class KeptSnapshot(Status):
    """One snapshot."""

    name: str = Field(max_length=32)
    """Its name, made of the time."""
    taken_at: str = Field(json_schema_extra={"format": "date-time"})
    """When the brokers were asked."""
    config_map: str = Field(max_length=253)
    """The ConfigMap that holds the offsets."""
    groups: int = Field(ge=0)
    """How many groups it has."""
    offsets: int = Field(ge=0)
    """How many offsets it has."""


class RestoredGroup(Status):
    """What a restore means for one group."""

    group: str = Field(max_length=255)
    """Name of the group."""
    redelivered: int = Field(ge=0)
    """Messages that it has consumed and gets again."""
    skipped: int = Field(ge=0)
    """Messages that it has not consumed and never gets."""
    ahead: int = Field(ge=0)
    """Messages between the restored offsets and the ends of those queues: what it gets then."""
    left_alone: int = Field(ge=0)
    """Queues that keep what they have: they end before the kept offset, or are not there."""
    online: bool = False
    """Whether members of it ran."""


class RestoredQueue(Status):
    """What a restore means for one queue of one group."""

    group: str = Field(max_length=255)
    """Name of the group."""
    pair: str = Field(max_length=253)
    """Broker name of the pair."""
    topic: str = Field(max_length=255)
    """Name of the topic."""
    queue: int = Field(ge=0)
    """Queue id."""
    from_offset: int | None = Field(default=None, ge=0)
    """What the master holds; absent when it holds none."""
    to_offset: int = Field(ge=0)
    """What it gets: the kept offset, or the queue's begin where that is later."""


class RestoreStatus(Status):
    """How far a restore is."""

    id: str = Field(max_length=32)
    """Identity of this preview, for spec.restore.confirm."""
    snapshot: str = Field(max_length=32)
    """Name of the snapshot."""
    phase: Literal["Preview", "Writing", "Complete"]
    """Preview waits for spec.restore.confirm."""
    redelivered: int = Field(ge=0)
    """Messages that groups have consumed and get again."""
    skipped: int = Field(ge=0)
    """Messages that groups have not consumed and never get."""
    ahead: int = Field(ge=0)
    """Messages between the restored offsets and the ends of those queues, of all groups."""
    groups: list[RestoredGroup] = Field(default=[], max_length=64)
    """By group; those with the most messages if there are more."""
    queues: list[RestoredQueue] = Field(default=[], max_length=256)
    """By queue, of those whose offset changes; those of the first groups if there are more."""
    more_queues: int = Field(default=0, ge=0)
    """Queues that change and are not listed."""
    finished_at: str | None = Field(default=None, json_schema_extra={"format": "date-time"})
    """When it was written and read back."""


class OffsetSnapshotStatus(CommonStatus):
    """Which snapshots there are, and how far a restore is."""

    snapshots: list[KeptSnapshot] = Field(default=[], max_length=MAX_KEPT + 1)
    """The newest first."""
    last_snapshot: str | None = Field(default=None, json_schema_extra={"format": "date-time"})
    """When the newest was taken."""
    next_snapshot: str | None = Field(default=None, json_schema_extra={"format": "date-time"})
    """When the next is due."""
    restore: RestoreStatus | None = None
    """The preview of spec.restore, or what has come of it."""


class OffsetSnapshot(Resource):
    """Consumer offsets of a cluster, kept in ConfigMaps and given back on request.

    It outlives its cluster. Conditions: Ready (the newest snapshot is as due), Restored (only
    with spec.restore).
    """

    status_model: ClassVar[type[Status]] = OffsetSnapshotStatus

    kind: Literal["OffsetSnapshot"] = "OffsetSnapshot"
    spec: OffsetSnapshotSpec
