"""SubscriptionGroup: one consumer group of a cluster."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from failback.operator.kinds.base import (
    CommonStatus,
    Model,
    Named,
    Resource,
    Status,
    Word,
    keyed_by,
)


class SubscriptionGroupSpec(Model):
    """The desired consumer group. It is written to masters only; slaves copy it.

    The two broker ids count only where the broker that answers has slaveReadEnable.
    """

    cluster_ref: Named
    """The BrokerCluster of this namespace that serves the group. Immutable."""
    group_name: str | None = Field(default=None, min_length=1, max_length=255)
    """The RocketMQ name, at most 120 letters, digits and %|_-. Unset: metadata.name. Immutable."""
    consume_enable: bool = True
    """Whether brokers serve the group at all."""
    consume_from_min_enable: bool = True
    """Whether a new consumer may begin at the smallest offset."""
    consume_broadcast_enable: bool = True
    """Whether broadcasting consumers are served."""
    notify_consumer_ids_changed_enable: bool = True
    """Whether brokers tell members at once when one comes or goes."""
    retry_queue_nums: int = Field(default=1, ge=1, le=1024)
    """Queues of the retry topic, per pair."""
    retry_max_times: int = Field(default=16, ge=-1, le=1000)
    """How often a message is delivered again before it goes to the dead letter topic."""
    broker_id: int = Field(default=0, ge=0, le=2**31 - 1)
    """The broker id suggested for the next pull while consumption is fast."""
    which_broker_when_consume_slowly: int = Field(default=1, ge=0, le=2**31 - 1)
    """The broker id suggested when the data are beyond the broker's memory share."""
    consume_message_orderly: bool | None = None
    """Ordered consumption; engine apache 5.x only, else a warning."""
    consume_timeout_minute: int | None = Field(default=None, ge=1, le=2**31 - 1)
    """Consume timeout in minutes; engine apache 5.x only, else a warning."""
    attributes: dict[str, Word] = Field(default={}, max_length=64)
    """Group attributes; engine apache 5.x only, else a warning."""
    deletion_policy: Literal["Retain", "Delete"] = "Retain"
    """Whether deleting this object deletes the group."""
    remove_offsets: bool = False
    """Whether deleting the group forgets its offsets. Needs deletionPolicy Delete."""


class GroupPair(Status):
    """The group on one pair."""

    name: str = Field(max_length=253)
    """Broker name of the pair."""
    on_master: bool | None = None
    """Whether the master has it as wanted."""
    on_slaves: bool | None = None
    """Whether all slaves have copied it."""


class SubscriptionGroupStatus(CommonStatus):
    """What was last seen of the group."""

    group_name: str | None = Field(default=None, max_length=255)
    """The RocketMQ name."""
    pairs: list[GroupPair] = keyed_by("name", default=[], max_length=64)
    """The group on each pair."""


class SubscriptionGroup(Resource):
    """One consumer group of a cluster.

    Conditions: Ready, Synced (masters and slaves have it as wanted), Stalled, Paused, Warning.
    """

    status_model: ClassVar[type[Status]] = SubscriptionGroupStatus

    kind: Literal["SubscriptionGroup"] = "SubscriptionGroup"
    spec: SubscriptionGroupSpec

    @property
    def group_name(self) -> str:
        """The RocketMQ group name."""
        return self.spec.group_name or self.name
