"""SubscriptionGroup: one consumer group of a cluster."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from failback.operator.kinds.base import Model, Named, Resource


class SubscriptionGroupSpec(Model):
    """What is wanted of the group. It is written to masters only; slaves copy it.

    The two broker ids count only where the *answering* broker has ``slaveReadEnable``
    (PullMessageProcessor, apache/rocketmq 4.9.8).
    """

    cluster_ref: Named
    group_name: str | None = None
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    notify_consumer_ids_changed_enable: bool = True
    retry_queue_nums: int = Field(default=1, ge=1, le=1024)
    retry_max_times: int = Field(default=16, ge=-1, le=1000)
    broker_id: int = Field(default=0, ge=0)
    """The id suggested for the next pull while consumption is fast."""
    which_broker_when_consume_slowly: int = Field(default=1, ge=0)
    """The id suggested when the data are beyond the memory share."""
    consume_message_orderly: bool | None = None
    consume_timeout_minute: int | None = Field(default=None, ge=1)
    attributes: dict[str, str] = Field(default={}, max_length=64)
    deletion_policy: Literal["Retain", "Delete"] = "Retain"
    remove_offsets: bool = False


class SubscriptionGroup(Resource):
    """One consumer group of a cluster."""

    kind: Literal["SubscriptionGroup"] = "SubscriptionGroup"
    spec: SubscriptionGroupSpec

    @property
    def group_name(self) -> str:
        """The RocketMQ group name."""
        return self.spec.group_name or self.name
