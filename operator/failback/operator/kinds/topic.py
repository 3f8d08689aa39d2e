"""Topic: one topic on all or some pairs of a cluster."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from failback.operator.kinds.base import Model, Named, Resource


class TopicSpec(Model):
    """What is wanted of the topic. It is written to masters only; slaves copy it."""

    cluster_ref: Named
    topic_name: str | None = None
    read_queue_nums: int = Field(default=8, ge=1, le=1024)
    write_queue_nums: int = Field(default=8, ge=1, le=1024)
    perm: Literal[2, 4, 6] = 6
    order: bool = False
    attributes: dict[str, str] = Field(default={}, max_length=64)
    """Engine apache 5.x only."""
    pairs: list[str] = Field(default=["*"], max_length=64)
    """``["*"]`` or names of pairs."""
    deletion_policy: Literal["Retain", "Delete"] = "Retain"


class Topic(Resource):
    """One topic on all or some pairs of a cluster."""

    kind: Literal["Topic"] = "Topic"
    spec: TopicSpec

    @property
    def topic_name(self) -> str:
        """The RocketMQ topic name."""
        return self.spec.topic_name or self.name
