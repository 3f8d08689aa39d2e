"""Phases 1 and 2: guards, topics and groups, recorder, snapshots, workload, warm-up.

Nothing is injected here. A guard that refuses leaves the cluster as it was.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import time
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from failback.chaos.cluster.view import ClusterView, Member
from failback.chaos.cluster.wire import WireConnection
from failback.chaos.errors import Aborted, GuardRefused, TargetError
from failback.chaos.experiment.spec import check_engine, check_target
from failback.chaos.faults import pause
from failback.chaos.faults.catalogue import refuse_impossible
from failback.chaos.faults.victims import require_consistent_roles
from failback.chaos.recorder.recorder import Recorder
from failback.chaos.run.run_document import (
    client_settings,
    slave_sync_ms,
    snapshot,
    write_run_json,
)
from failback.chaos.session import RECORDER_PROC_NO, STEADY_STATE, Session
from failback.chaos.workload.process import WorkloadProcess
from failback.chaos.workload.supervisor import Supervisor
from failback.client.admin.queue_offsets import COPIES_NONE
from failback.protocol import calls
from failback.protocol.errors import BrokerError, FailbackError
from failback.protocol.message import DLQ_PREFIX
from failback.protocol.route import SubscriptionGroupConfig, TopicConfig

logger = logging.getLogger(__name__)

MAX_DISK_RATIO: Final = 0.9
ROUTE_SECONDS: Final = 30.0
ANSWER_SECONDS: Final = 20.0
PRELOAD_SECONDS: Final = 60.0
ASSIGN_SECONDS: Final = 60.0
SLAVE_SYNC_SECONDS: Final = 90.0


def prepare(session: Session) -> None:
    """Bring the run to the end of its warm-up.

    Raises:
        GuardRefused: The cluster must not be touched.
        Aborted: The run must stop, or the warm-up did not end.
        FailbackError: Something else went wrong; nothing was injected.
    """
    session.progress("checking the cluster")
    session.view = check_guards(session)
    _open_recorder(session)
    _read_versions(session, session.view)
    _configure(session, session.view)
    _create_topics(session, session.view)
    snapshot(session, "start")
    write_run_json(session)
    session.rec.start(session.view)
    _start_workload(session)
    _warm_up(session)
    session.stage = STEADY_STATE
    write_run_json(session)


# --- guards --------------------------------------------------------------------------------------


def check_guards(session: Session) -> ClusterView:
    """Look at the cluster and refuse what must not be hit."""
    view = _answering_view(session)
    check_engine(session.experiment, session.arm, view.engine)
    if session.arm.engine is not None and session.arm.engine != view.engine:
        raise GuardRefused(
            "Engine", f"arm {session.arm.name} needs {session.arm.engine}, this is {view.engine}"
        )
    check_target(session.experiment, session.arm, session.target.kind)
    if not view.pairs:
        raise GuardRefused("ClusterReady", f"cluster {view.cluster} has no brokers")
    require_consistent_roles(view)
    for member in view.members:
        if not member.running:
            raise GuardRefused("ClusterReady", f"{member.pod} is not running")
        if not _answers(member):
            raise GuardRefused("ClusterReady", f"{member.pod} runs and does not answer")
    _check_time_scale(session, view)
    for fault in session.arm.faults:
        name = fault.target.pair
        if name and view.pair(name) is None:
            known = ", ".join(pair.broker_name for pair in view.pairs)
            raise GuardRefused("TargetMatches", f"{fault.id}: no pair {name}, there is {known}")
    refuse_impossible(session.arm.faults, session.target, view)
    _check_disks(view)
    for fault in session.arm.faults:
        seconds = fault.with_.get("durationSeconds", pause.DEFAULT_SECONDS)
        session.refuse_unsafe(fault.fault, float(seconds))
    return view


def _answering_view(session: Session) -> ClusterView:
    """Return the cluster once its running brokers answer: one that has just started may be slow."""
    deadline = time.monotonic() + ANSWER_SECONDS
    while True:
        try:
            view = session.target.view()
        except TargetError as error:
            raise GuardRefused("TargetMatches", str(error)) from error
        if all(map(_answers, view.members)) or time.monotonic() >= deadline:
            return view
        time.sleep(1.0)


def _answers(member: Member) -> bool:
    """Tell whether a member says since when it runs; one that does not run has nothing to say."""
    return not member.running or (
        member.identity is not None and member.identity.boot_ms is not None
    )


def _check_time_scale(session: Session, view: ClusterView) -> None:
    """Brokers and clients must be scaled alike, or no bound holds."""
    for member in view.members if view.engine == "failback" else ():
        with WireConnection(member.address) as connection:
            shown = float(connection.broker_config().get("failbackTimeScale", "1"))
        if abs(shown - session.time_scale) > 1e-9:
            raise GuardRefused(
                "TimeScale",
                f"{member.pod} runs at failbackTimeScale {shown:g}, "
                f"the experiment at {session.time_scale:g}",
            )


def _check_disks(view: ClusterView) -> None:
    for store in {member.store for member in view.members if member.store}:
        with contextlib.suppress(FileNotFoundError):
            usage = shutil.disk_usage(store)
            ratio = usage.used / usage.total
            if ratio >= MAX_DISK_RATIO:
                raise GuardRefused("DiskFree", f"the disk under {store} is {ratio:.0%} full")


# --- the cluster ---------------------------------------------------------------------------------


def _read_versions(session: Session, view: ClusterView) -> None:
    """Versions, and what a bound needs of the brokers' configuration."""
    for member in view.members:
        with WireConnection(member.address) as connection:
            runtime = connection.runtime_info(timeout=3.0)
            config = connection.broker_config()
        session.versions[member.pod] = runtime.get("brokerVersionDesc", "unknown")
        if member.role == "master" and not session.system:
            session.system = _system_of(config, session, session.versions[member.pod])


def _system_of(config: Mapping[str, str], session: Session, version: str) -> dict[str, Any]:
    """Intervals as configured, not scaled: ``time_scale`` stands beside them."""
    commit = client_settings(session).persist_offset_interval_ms
    return {
        "slave_read_enable": config.get("slaveReadEnable", "false") == "true",
        "flush_interval_ms": int(config.get("flushConsumerOffsetInterval", 5000)),
        "slave_sync_interval_ms": slave_sync_ms(version),
        "slave_copies_offsets": version not in COPIES_NONE,
        "delay_flush_interval_ms": int(config.get("flushDelayOffsetInterval", 10_000)),
        "client_commit_interval_ms": round(commit),
        "broker_role": config.get("brokerRole", ""),
        "flush_disk_type": config.get("flushDiskType", ""),
        "rules": config.get("failbackRules", "compat"),
    }


def _configure(session: Session, view: ClusterView) -> None:
    """The arm's brokerConfig, set at every broker and read back."""
    changes = dict(session.arm.broker_config)
    if not changes:
        return
    for member in view.members:
        with WireConnection(member.address) as connection:
            try:
                connection.ask(calls.update_broker_config(changes))
            except BrokerError as error:  # such as a key that only a start takes up
                raise GuardRefused("BrokerConfig", f"{member.pod}: {error.remark}") from error
            shown = connection.broker_config()
        for key, value in changes.items():
            if shown.get(key) != value:
                raise GuardRefused(
                    "BrokerConfig", f"{member.pod} keeps {key}={shown.get(key)}, asked was {value}"
                )


def _create_topics(session: Session, view: ClusterView) -> None:
    """Topics and groups on every master, read back there and at every name server."""
    workload = session.arm.workload
    for master in session.masters():
        with WireConnection(master.address) as connection:
            topics, groups = connection.topic_names(), connection.group_names()
            for topic in workload.topics:
                if topic.name not in topics:
                    connection.ask(
                        calls.create_topic(TopicConfig(topic.name, topic.queues, topic.queues))
                    )
            for group in workload.groups:
                if group.name not in groups:
                    connection.ask(calls.create_group(SubscriptionGroupConfig(group.name)))
            _read_back(session, master, connection)
            _skip_old_messages(session, master, connection)
    wanted = {pair.broker_name for pair in view.pairs}
    for topic in workload.topics:
        for nameserver in view.nameservers:
            if not session.wait_for(partial(_shows, nameserver, topic.name, wanted), ROUTE_SECONDS):
                raise GuardRefused("RouteExists", f"{nameserver} shows no route of {topic.name}")


def _read_back(session: Session, master: Member, connection: WireConnection) -> None:
    workload = session.arm.workload
    missing = {topic.name for topic in workload.topics} - connection.topic_names()
    missing |= {group.name for group in workload.groups} - connection.group_names()
    if missing:
        raise GuardRefused("TopicsExist", f"{master.pod} did not keep {', '.join(sorted(missing))}")


def _skip_old_messages(session: Session, master: Member, connection: WireConnection) -> None:
    """Have each group begin at the end of what earlier runs left in its topics."""
    offsets = connection.all_offsets()
    for group, topic in session.group_topics().items():
        for name in (topic, f"%RETRY%{group}", f"%DLQ%{group}"):
            for queue, (_, highest) in connection.topic_stats(name).items():
                session.start_offsets[master.broker_name, name, queue] = highest
                committed = offsets.get(f"{name}@{group}", {}).get(queue, 0)
                if committed < highest and not name.startswith(DLQ_PREFIX):
                    connection.commit_offset(group, name, queue, highest)


def _shows(nameserver: str, topic: str, brokers: set[str]) -> bool:
    try:
        with WireConnection(nameserver) as connection:
            return brokers <= set(connection.route(topic))
    except FailbackError:
        return False


def await_slaves(session: Session) -> None:
    """Wait until every slave knows the run's topics and groups: before that it cannot serve them.

    Raises:
        Aborted: Some slave has not synchronised in time.
    """
    names = set(session.topic_names())
    groups = set(session.group_topics())
    slaves = [
        each for each in (session.view.members if session.view else ()) if each.role == "slave"
    ]
    for slave in slaves:
        if not session.wait_for(lambda s=slave: _knows(s, names, groups), SLAVE_SYNC_SECONDS):  # type: ignore[misc]
            raise Aborted(f"{slave.pod} has not synchronised topics and groups")


def _knows(slave: Member, topics: set[str], groups: set[str]) -> bool:
    try:
        with WireConnection(slave.address) as connection:
            return topics <= connection.topic_names() and groups <= connection.group_names()
    except FailbackError:
        return False


# --- recorder, workload --------------------------------------------------------------------------


def _open_recorder(session: Session) -> None:
    session.recorder = Recorder(
        folder=session.folder,
        run=session.run,
        proc_no=RECORDER_PROC_NO,
        proc=session.recorder_proc,
        target=session.target,
        topics=session.topic_names(),
        groups=session.group_topics(),
        time_scale=session.time_scale,
        segment_seconds=session.arm.workload.log.segment_seconds,
    )


def _start_workload(session: Session) -> None:
    assert session.view is not None
    supervisor = Supervisor(
        folder=session.folder,
        ledger=session.ledger,
        run=session.run,
        workload=session.arm.workload,
        nameservers=session.view.nameservers,
        access_files=session.view.access,
        time_scale=session.time_scale,
        seeds=session.schedule.seeds,
        start_phases=session.schedule.start_phases,
        on_unplanned=session.on_unplanned_end,
        on_started=lambda process: _remember(session, process),
    )
    session.supervisor = supervisor
    session.rec.matcher.send_ok_after = supervisor.send_ok_after
    supervisor.start_producers()
    preloading = sum(topic.preload_messages for topic in session.arm.workload.topics)
    if preloading:
        session.progress(f"producing a backlog of {round(session.scaled(preloading))} messages")
        if not session.wait_for(supervisor.preloaded, PRELOAD_SECONDS):
            raise Aborted("the backlog could not be produced")
    supervisor.start_consumers()


def _remember(session: Session, process: WorkloadProcess) -> None:
    if session.recorder is not None:
        session.recorder.log.write("life", state=f"STARTED:{process.name}:{process.proc_no}")
    if session.supervisor is not None:
        write_run_json(session)


def _warm_up(session: Session) -> None:
    session.progress("warming up")
    spread = max(session.schedule.start_phases.values(), default=0.0)
    if not session.wait_for(
        lambda: session.load.all_assigned(), ASSIGN_SECONDS + session.scaled(spread)
    ):
        raise Aborted("not every member was assigned queues")
    warm = session.scaled(session.experiment.spec.warmup_seconds)
    session.sleep_until(time.monotonic_ns() + round(warm * 1e9))
    session.phases.warmup_end = time.monotonic_ns()
