"""What a run folder says of the cluster and of the run: snapshots and run.json.

run.json is written as soon as something is known and rewritten when more is; the analysis reads it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
from pathlib import Path
from typing import Any, Final

import failback.chaos as package
from failback.chaos.cluster.view import ClusterView
from failback.chaos.cluster.wire import WireConnection
from failback.chaos.errors import TargetError
from failback.chaos.experiment.model import Group, Model
from failback.chaos.run_folder.run_folder import RUN_SCHEMA
from failback.chaos.session import RECORDER_PROC_NO, Session
from failback.chaos.workload.plan import ProcessPlan
from failback.client.remoting.settings import ClientSettings
from failback.protocol.errors import FailbackError

logger = logging.getLogger(__name__)

SNAPSHOT_FILES: Final = (
    "config/consumerOffset.json",
    "config/consumerOffset.json.bak",
    "config/delayOffset.json",
)
_RULES: Final = (((4, 9, 4), (4, 9, 99), "4.9.8"), ((5, 1, 4), (5, 5, 99), "5.x"))
"""First and last version, and the name of their rules: nothing that a bound rests on changes."""
_SLAVE_SYNC_MS: Final = {"5.x": 63_000}
"""How old a slave's copy of the offsets may get, where it is not 10 s.

5.x looks every 3 s whether more than a minute has passed."""


def rule_set(version: str) -> str:
    """Return whose rules a broker follows, by its ``brokerVersionDesc``; the version if unknown."""
    found = re.fullmatch(r"V(\d+)_(\d+)_(\d+)", version)
    numbers = tuple(map(int, found.groups())) if found else ()
    return next((name for first, last, name in _RULES if first <= numbers <= last), version)


def slave_sync_ms(version: str) -> int:
    """Return how often a slave of this ``brokerVersionDesc`` copies the master's offsets."""
    return _SLAVE_SYNC_MS.get(rule_set(version), 10_000)


def snapshot(session: Session, when: str) -> None:
    """Offset files, tables and configuration of every broker that answers."""
    view = session.view
    for member in view.members if view else ():
        folder = f"snap/{when}/{member.pod}"
        for path in SNAPSHOT_FILES:
            with contextlib.suppress(OSError, TargetError):
                data = session.target.read_store(member, path)
                session.folder.write_bytes(f"{folder}/{Path(path).name}", data)
        try:
            with WireConnection(member.address) as connection:
                offsets = connection.all_offsets()
                config = connection.broker_config()
        except FailbackError as error:
            logger.warning("no snapshot of %s: %s", member.pod, error)
            continue
        session.folder.write_bytes(f"{folder}/code43.json", _json(offsets))
        session.folder.write_bytes(f"{folder}/code26.json", _json(config))
        text = "".join(f"{key}={value}\n" for key, value in sorted(config.items()))
        session.folder.write_bytes(f"{folder}/broker.conf", text.encode())


def write_run_json(session: Session) -> None:
    """Write run.json as far as it is known; rewritten when a process starts and at the close."""
    session.folder.write_json("run.json", run_document(session))


def run_document(session: Session) -> dict[str, Any]:
    """The contents of run.json, schema failback.run/1."""
    experiment, arm, view = session.experiment, session.arm, session.view
    zero = session.zero
    (own,) = (each for each in experiment.spec.arms if each.name == arm.name)
    of_all = [each for each in experiment.spec.expect if each.arm in (None, arm.name)]

    def written(model: Model) -> dict[str, Any]:
        return model.model_dump(mode="json", by_alias=True)

    version = next(iter(session.versions.values()), "unknown")
    settings = client_settings(session)
    return {
        "schema": RUN_SCHEMA,
        "run": session.run,
        "experiment": experiment.name,
        "scenario": experiment.name,
        "arm": arm.name,
        "repetition": session.repetition,
        "seed": str(experiment.seed),
        "drawn": session.schedule.drawn(),
        "versions": {"failback": package.__version__, **session.versions},
        "rule_set": rule_set(version),
        "engine": view.engine if view else None,
        "time_scale": session.time_scale,
        "warmup_seconds": experiment.spec.warmup_seconds,
        "steady_state": experiment.spec.steady_state.model_dump(
            include={"hold_seconds", "timeout_seconds"}
        ),
        "log_mode": arm.workload.log.mode,
        "zero": {"wall_ns": zero.wall_ns, "mono_ns": zero.mono_ns},
        "warmup_end_ns": session.after_zero(session.phases.warmup_end),
        "switches": settings.to_dict(),
        "image_digests": dict(view.images) if view else {},
        "start_phases": dict(session.schedule.start_phases),
        "topology": {"pairs": _pairs(view), "nameservers": list(view.nameservers) if view else []},
        "system": dict(session.system),
        "topics": [
            {"name": each.name, "queues": each.queues, "ordered": each.ordered}
            for each in arm.workload.topics
        ],
        "groups": [_group(each) for each in arm.workload.groups],
        "procs": _procs(session),
        "workload": written(arm.workload),
        "faults": [written(each) for each in arm.faults],
        "expect": [written(each) for each in (*of_all, *own.expect)],
        "thresholds": written(experiment.spec.thresholds),
        "target": {
            "kind": session.target.kind,
            "cluster": experiment.cluster,
            "namespace": view.namespace if view else experiment.namespace,
        },
    }


def _group(group: Group) -> dict[str, Any]:
    return {
        "name": group.name,
        "topic": group.topic,
        "members": group.members,
        "model": group.model,
        "orderly": False,
        "messageModel": group.message_model,
    }


def client_settings(session: Session) -> ClientSettings:
    """The settings that the workload's clients use; refuses a switch that does not exist."""
    plan = ProcessPlan(
        run=session.run,
        hot=session.folder.hot,
        proc_no=0,
        proc=None,
        namesrv=("127.0.0.1:9876",),
        control=None,
        time_scale=session.time_scale,
        switches=session.arm.workload.switches,
    )
    return plan.settings()


def _pairs(view: ClusterView | None) -> list[dict[str, Any]]:
    return [
        {
            "name": pair.name,
            "broker": pair.broker_name,
            "members": [
                {name: getattr(member, name) for name in ("broker_id", "address", "pod", "role")}
                for member in pair.members
            ],
        }
        for pair in (view.pairs if view else ())
    ]


def _procs(session: Session) -> list[dict[str, Any]]:
    host = session.recorder.log.host if session.recorder else ""
    rows: list[tuple[Any, ...]] = [
        (RECORDER_PROC_NO, session.recorder_proc.hex(), "recorder", host, None, None)
    ]
    for each in session.supervisor.processes if session.supervisor else ():
        client_id = each.stats.get("client_id")
        group = each.group or None
        rows.append((each.proc_no, each.proc.hex(), each.role, host, group, client_id))
    names = ("proc_no", "proc", "role", "host", "group", "client_id")
    return [dict(zip(names, row, strict=True)) for row in rows]


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=1, sort_keys=True).encode() + b"\n"
