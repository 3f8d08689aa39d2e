"""What a pass decides: actions, events, the running operation, the status. Pure data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from failback.operator.planning.observed.observed import Key, Object
from failback.operator.render.shape import Member

Status = Mapping[str, Any]


# --- actions: each can be repeated, and carries the precondition that makes it so --------------


@dataclass(frozen=True, slots=True)
class Apply:
    """Server-side apply of a whole object."""

    manifest: Object


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete exactly this object; gone or replaced already is success."""

    key: Key
    uid: str
    propagation: str = "Background"


@dataclass(frozen=True, slots=True)
class Evict:
    """Evict a pod through its budget. Disruptive."""

    pod: str
    uid: str


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete a pod without asking its budget. Disruptive."""

    pod: str
    uid: str
    grace_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class LabelPod:
    """Set labels of a pod (the observed role)."""

    pod: str
    uid: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ResizeClaim:
    """Ask for more storage."""

    claim: str
    uid: str
    size: str


@dataclass(frozen=True, slots=True)
class SetConfig:
    """UPDATE_BROKER_CONFIG (25), then read back by 26: ``values`` must be in that answer."""

    member: Member
    address: str
    values: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PutTopic:
    """UPDATE_AND_CREATE_TOPIC (17) on one master, read back by 21."""

    address: str
    config: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PutGroup:
    """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200) on one master, read back by 201."""

    address: str
    config: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """DELETE_TOPIC_IN_BROKER (215) at ``brokers``, DELETE_TOPIC_IN_NAMESRV (216) at the rest."""

    topic: str
    brokers: tuple[str, ...]
    name_servers: tuple[str, ...]
    cluster: str = ""
    """RocketMQ cluster name: other clusters at the same name servers keep theirs."""


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """DELETE_SUBSCRIPTIONGROUP (207)."""

    group: str
    address: str
    remove_offsets: bool


@dataclass(frozen=True, slots=True)
class PutKv:
    """PUT_KV_CONFIG (100) at every name server; an empty value is DELETE_KV_CONFIG (102)."""

    name_servers: tuple[str, ...]
    namespace: str
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class CommitOffsets:
    """UPDATE_CONSUMER_OFFSET (15) per (topic@group, queue, offset), read back by 43.

    43 is asked right before: a value that has grown past ``offset`` since is not lowered.
    """

    address: str
    offsets: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class RestoreOffsets:
    """UPDATE_CONSUMER_OFFSET (15) per (topic@group, queue, old, new), read back by 43.

    43 is asked right before: where the broker has neither ``old`` nor ``new``, another
    client has set it, and it is left as it is. ``old`` is ``None`` where the broker had none.
    """

    address: str
    offsets: tuple[tuple[str, int, int | None, int], ...]
    id: str
    """Of the restore that this is part of."""


@dataclass(frozen=True, slots=True)
class TakeLease:
    """Create, renew or take over (when expired) a Lease for ``holder``."""

    name: str
    holder: str
    seconds: int


@dataclass(frozen=True, slots=True)
class ReleaseLease:
    """Delete a Lease that ``holder`` holds."""

    name: str
    holder: str


@dataclass(frozen=True, slots=True)
class MarkClaim:
    """Write on a claim whose log it has: role, epoch and the log's end."""

    claim: str
    uid: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PatchMetadata:
    """Remove annotations of the custom resource itself (a fired ``restart-member``)."""

    remove_annotations: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SaveSnapshot:
    """Write an offset snapshot (``topic@group`` → queue → offset) to a ConfigMap."""

    name: str
    owner: Object
    offsets: Mapping[str, Mapping[int, int]]
    label: str = ""
    """Which snapshot of which switch this is; read back as ``snapshot_label``."""


Action = (
    Apply
    | Delete
    | Evict
    | DeletePod
    | LabelPod
    | ResizeClaim
    | SetConfig
    | PutTopic
    | PutGroup
    | DeleteTopic
    | DeleteGroup
    | PutKv
    | CommitOffsets
    | RestoreOffsets
    | TakeLease
    | ReleaseLease
    | MarkClaim
    | PatchMetadata
    | SaveSnapshot
)
DISRUPTIVE = (Evict, DeletePod)
"""A plan holds at most one of these, or one SetConfig of ``brokerPermission``, per cluster."""


@dataclass(frozen=True, slots=True)
class Event:
    """One Kubernetes event."""

    reason: str
    message: str
    warning: bool = False
    about: Object | None = None
    """Reference of the object it is about; ``None`` = the resource of the pass."""
    lane: int | None = field(default=None, compare=False)
    """The lane of the actions that it tells of: it is told although another lane has ended."""


# --- operations ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Operation:
    """One item of ``status.currentOperation`` and ``otherOperations``: a resumable state machine.

    The step is in the status before its first side effect; every step begins with its own
    "already done?" test. All that must survive the operator is in ``data``.
    """

    id: str
    type: str
    step: str
    pair: int | None = None
    member: int | None = None
    started_at: float = 0.0
    step_started_at: float = 0.0
    attempts: int = 0
    blocked_by: tuple[str, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)

    def at_step(self, step: str, now: float, **data: Any) -> Operation:
        """Return the operation at another step, with ``data`` merged in."""
        moved = replace(self, step=step, step_started_at=now, attempts=0, blocked_by=())
        return moved.remembering(data)

    def remembering(self, data: Mapping[str, Any]) -> Operation:
        """Return the operation with ``data`` merged in; ``None`` takes a key out.

        It equals what is read back from the status, which holds no ``None``.
        """
        merged = {**self.data, **data}
        kept = {key: value for key, value in merged.items() if value is not None}
        return replace(self, data=kept)

    def blocked(self, *predicates: str) -> Operation:
        """Return the operation waiting at its step for named predicates."""
        return replace(self, blocked_by=tuple(predicates))


@dataclass(frozen=True, slots=True)
class Advance:
    """What an operation wants of this pass.

    ``operation`` ``None`` means that it ended. If the step differs from the status, the status is
    written first and the actions of the new step belong to the next pass or follow that write.
    """

    operation: Operation | None
    actions: tuple[Action, ...] = ()
    events: tuple[Event, ...] = ()
    wake_after: float = 2.0
    counts: bool = False
    """What changed in the operation only says what these actions did: it is written after them. An
    operator that dies before them has not tried, and the next one must not take it for a try."""


# --- the plan -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Plan:
    """All that a pass decided for one custom resource."""

    actions: tuple[Action, ...] = ()
    status: Status = field(default_factory=dict)
    """The whole status wanted after the actions; written only where it differs."""
    lanes: tuple[int | None, ...] = ()
    """For each action its lane: a failure ends its own lane only. Empty = all in one."""
    operations_first: Status | None = None
    """The operations as they are to be in the status (written with resourceVersion) before the
    actions; ``None`` = nothing has to be."""
    events: tuple[Event, ...] = ()
    wake_after: float | None = None
    """Seconds until the next pass although nothing happens; ``None`` = the resync period."""
    farewell: tuple[Event, ...] = ()
    """Told once the resource is gone, if it goes without any work."""
    last_actions: tuple[Action, ...] = ()
    """Carried out once the resource is gone."""
    finalizer: bool | None = None
    """Whether the resource is to carry our finalizer: its deletion would leave something to undo.
    It is put on before the actions and taken off after them; ``None`` = as it is."""
