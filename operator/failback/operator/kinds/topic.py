"""Topic: one topic on all or some pairs of a cluster."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

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

_PAIR: Final = r"^(\*|[A-Za-z0-9_-]{1,64}-[0-9]{1,2})$"


class TopicSpec(Model):
    """The desired topic. It is written to masters only; slaves copy it."""

    cluster_ref: Named
    """The BrokerCluster of this namespace that holds the topic. Immutable."""
    topic_name: str | None = Field(default=None, min_length=1, max_length=127)
    """The RocketMQ name: letters, digits and %|_-. Unset: metadata.name. Immutable."""
    read_queue_nums: int = Field(default=8, ge=1, le=1024)
    """Queues that consumers read, per pair; at least writeQueueNums. Lowered last."""
    write_queue_nums: int = Field(default=8, ge=1, le=1024)
    """Queues that producers write, per pair."""
    perm: Literal[2, 4, 6] = 6
    """2 write, 4 read, 6 both."""
    order: bool = False
    """Whether name servers announce the topic as ordered (ORDER_TOPIC_CONFIG)."""
    attributes: dict[str, Word] = Field(default={}, max_length=64)
    """Topic attributes; engine Apache 5.x only, else a warning."""
    pairs: list[Annotated[str, Field(pattern=_PAIR, max_length=67)]] = Field(
        default=["*"], max_length=64
    )
    """The pairs that hold the topic: broker names, or * for all."""
    deletion_policy: Literal["Retain", "Delete"] = "Retain"
    """Whether deleting this object deletes the topic and its messages."""


class TopicPair(Status):
    """The topic on one pair."""

    name: str = Field(max_length=253)
    """Broker name of the pair."""
    on_master: bool | None = None
    """Whether the master has it as wanted."""
    on_slaves: bool | None = None
    """Whether all slaves have copied it."""
    read_queue_nums: int | None = None
    """Read queues on the master."""
    write_queue_nums: int | None = None
    """Write queues on the master."""
    perm: int | None = None
    """Permission on the master."""


class TopicStatus(CommonStatus):
    """What was last seen of the topic."""

    topic_name: str | None = Field(default=None, max_length=127)
    """The RocketMQ name."""
    pairs: list[TopicPair] = keyed_by("name", default=[], max_length=64)
    """The topic on each pair."""


class Topic(Resource):
    """One topic on all or some pairs of a cluster.

    Conditions: Ready, Synced (masters and slaves have it as wanted), Stalled, Paused, Warning.
    """

    status_model: ClassVar[type[Status]] = TopicStatus

    kind: Literal["Topic"] = "Topic"
    spec: TopicSpec

    @property
    def topic_name(self) -> str:
        """The RocketMQ topic name."""
        return self.spec.topic_name or self.name
