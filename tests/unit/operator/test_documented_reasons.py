"""The page of conditions explains every reason that a condition can have."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reference" / "conditions.md").read_text()
OPERATOR = ROOT / "operator" / "failback" / "operator"
SOURCES = (
    *OPERATOR.glob("planning/**/*.py"),
    OPERATOR / "controller" / "passes.py",
    OPERATOR / "controller" / "outcome.py",
)
WORD = re.compile(r"[A-Z][A-Za-z0-9]+")

OTHER_WORDS = """
kinds: ConfigMap Group Job PersistentVolumeClaim PodDisruptionBudget PodMonitor Service
    SparkApplication
    StatefulSet Topic
conditions: ConfigApplied ExternalAccess Injected MetadataSynced Paused Ready Reconciling Recovered
    ReplicationHealthy RolesConsistent ScalingDown OffsetsCarried Stalled SteadyStateRestored
    AccessControl TLS DrainWaits SuccessCriteriaMet Warning WithinThresholds PodScheduled
phases: Completed Preparing Degraded Done Failed Finished Injecting Pass Recovering
    Switching SteadyState Fail Updating Preview Writing
operations and steps: ApplyOffsets ChooseMember CopyMetadata CreateMembers DeleteMembers
    DrainMaster DrainPair DrainWrites EvictMember LiveConfig OpenWrites RoleSwitch
    RecreateStatefulSet RejoinOldMaster Replicate ResizeClaims Resync Roll RollBack ScaleDown
    ScaleUp SetConfig StartMember StartNewMaster StopMember StopOldMaster SyncOffsets TakeLease
    Unregister Verify VolumeResize WaitEmpty WaitReady WaitRegistered WaitReplicated WaitResized
    WipeClaim
predicates: ClaimsSettled ClusterExists LagAcceptable LagKnown LogEndsKnown MasterAgreed
    MasterAnswers MasterKnown
    MasterReady MasterUnregistered MemberAnswers MetadataEqual MinReadySeconds NamesFree
    NameServersReachable NoChaosRunning NoOtherMemberDown NoOtherOperation NoOtherPairDisrupted
    NoExperiment NoOtherSwitch NotPaused OffsetsFresh OffsetsKnown OldMasterDown OldMasterFenced
    OldMasterGone OldMasterReady OldMasterRejoined PDBAllows PairFree PairHasInSyncSlave
    PrefixVerified RequestKnown RouteClosed RouteOpen SingleMaster SlavesAheadStopped SlavesAnswer
    SnapshotReadable StoreCompatible TargetMostAdvanced TargetReady
events: AddressesChanged ConfigRejected ConfigUpdated Created Deleted DrainBlocked DrainFinished
    DrainStarted DrainSwitch DriftRepaired DriftSeen ExperimentAborted ExperimentFinished
    ExperimentRefused ExperimentStarted FaultHealed FaultInjected FieldIgnored OffsetTableTooLarge
    OffsetsKept OffsetsNotCarried OffsetsRestored OffsetsRestoring OperationBlocked
    OperationFinished OperationStarted OperationTimedOut PairAdded PairEmpty PairRemoved PodRestart
    ReportFailed ReportFinished ReportStarted Retained RoleSwitchFailed RoleSwitchFinished
    RoleSwitchBlocked RoleSwitchRolledBack RoleSwitchStarted RoleSwitchStep ScaledDown ScaledUp
    SlaveDiverged TopicUpdated TwoMastersDetected Updated VolumeResized
fields: ConfigChanged CopyMax Idle Delete Empty Ephemeral FallenBehind Gated LoadBalancer Master
    Allow Wait ImageChanged Manual NodePort OnDelete Persistent Planned
    Retain RuntimeDefault SLAVE SlaveReadOnly Spark TemplateChanged TooFarBehind Unconfined Under1Mi
    Under256Mi Unverified WaitSync Zero
of RocketMQ and kubelet: TBW102 OOMKilled PROM
of Kubernetes and Spark: AlreadyExists Background COMPLETED Conflict ControllerResizeError
    CrashLoop DisruptionTarget ErrImageNeverPull ErrImagePull FAILED FAILING False
    FileSystemResizePending Foreground INVALIDATING ImageInspectError ImagePullBackOff
    InvalidImageName NodeResizeError Orphan RegistryUnavailable Resizing True
"""
"""Capitalised words of the same code that are no reason, by what they are."""


def words_of_the_code() -> set[str]:
    """Return every capitalised word that the planning code holds as a string, docstrings aside."""
    found = set()
    for source in SOURCES:
        for node in ast.walk(ast.parse(source.read_text())):
            value = node.value if isinstance(node, ast.Constant) else None
            if isinstance(value, str) and WORD.fullmatch(value):
                found.add(value)
    return found


def other_words() -> set[str]:
    lines = [line.rpartition(":")[2] for line in OTHER_WORDS.splitlines()]
    return {word for line in lines for word in line.split()}


def documented_reasons() -> set[str]:
    """Return the reasons of the first column of the table."""
    part = PAGE.split("## Conditions")[1].split("\n## ")[0]
    cells = [line.split("|")[1] for line in part.splitlines() if line.startswith("| ")]
    return {word for cell in cells for word in re.findall(r"`([A-Za-z]+)`", cell)}


def test_every_reason_is_explained() -> None:
    assert sorted(words_of_the_code() - other_words() - documented_reasons()) == []


def test_every_explained_reason_exists() -> None:
    assert sorted(documented_reasons() - words_of_the_code()) == []


def test_what_is_no_reason_is_not_explained_as_one_and_exists() -> None:
    assert sorted(other_words() & documented_reasons()) == []
    assert sorted(other_words() - words_of_the_code()) == []
