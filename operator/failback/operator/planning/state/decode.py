"""From objects of the API server to :class:`Pod` and :class:`Claim`. Pure."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from failback.operator.engines.catalogue import config_keys
from failback.operator.planning.observed.observed import Claim, Object, Pod
from failback.operator.planning.plan.encoding import from_time
from failback.operator.planning.state.running_engine import engine_of
from failback.operator.render import common

_IMAGE_REASONS: Final = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "ImageInspectError",
        "RegistryUnavailable",
    }
)
_STORE_EXIT: Final = 253  # System.exit(-3), which 4.9.8 uses for a store it can't load
MAX_WORDS: Final = 256
_LOG_LINE: Final = re.compile(r"^\S{0,40}\d\d:\d\d:\d\d|^\d{4}-\d\d-\d\d[ T]|^\{")
"""A line of a log begins with its time, or is JSON. It says what was done, not why it ended."""
_SIGNALS: Final[Mapping[int, str]] = {
    137: "SIGKILL, by a person, the kubelet or the kernel; see kubectl logs --previous",
    143: "SIGTERM, by a person or the kubelet",
}
_LAST_LINES: Final = 5
DRAIN: Final = "failback.dev/drain"
"""Annotation of a pod that is to leave its node."""
MAY_START: Final = frozenset({"Verified", "Unverified", "Master", "Empty"})
"""Verdicts of the check of a member's log that let its broker start."""
STAYS_OUT: Final = frozenset({"Diverged", "SlaveAhead", "TooFarBehind"})
"""Verdicts that do not."""
GATED: Final = "Gated"
"""No verdict: the end of the log was read, and the broker never starts."""


def decode_pod(item: Object) -> Pod:
    """Return a pod as planning sees it."""
    metadata, status = item["metadata"], item.get("status", {})
    marks, labels = metadata.get("annotations", {}), metadata.get("labels", {})
    ready = _condition(status, "Ready")
    is_ready = ready.get("status") == "True"
    problem, message = ("", "") if is_ready else _problem(item)
    verdict, checked_at = _verdict(status)
    return Pod(
        name=metadata["name"],
        uid=metadata["uid"],
        phase=status.get("phase", "Pending"),
        ready=is_ready,
        deleting="deletionTimestamp" in metadata,
        ip=status.get("podIP", ""),
        node=item.get("spec", {}).get("nodeName", ""),
        started_at=from_time(status.get("startTime")),
        ready_since=from_time(ready.get("lastTransitionTime")) if is_ready else None,
        restart_hash=marks.get("failback.dev/restart-hash", ""),
        restarted_at=marks.get("failback.dev/restarted-at", ""),
        revision=labels.get("controller-revision-hash", ""),
        role=labels.get("failback.dev/role", ""),
        restarts=sum(int(entry.get("restartCount", 0)) for entry in _main(status)),
        problem=problem,
        message=message,
        image=_image(item),
        engine=engine_of({"spec": {"template": item}}),
        prefix=str(verdict.get("prefix", "")),
        prefix_message=_words(verdict),
        tail_bytes=_tail_bytes(verdict),
        own_end=_bytes(verdict, "ownEnd"),
        master_end=_bytes(verdict, "masterEnd"),
        checked_at=checked_at,
        gated=common.GATE in marks,
        stored_ms=_bytes(verdict, "storedMs"),
        leaving=_leaving(marks, status),
    )


def _leaving(marks: Mapping[str, str], status: Mapping[str, Any]) -> str:
    if marks.get(DRAIN) == "true":
        return f"annotation {DRAIN}"
    target = _condition(status, "DisruptionTarget")
    return "condition DisruptionTarget" if target.get("status") == "True" else ""


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    for entry in status.get("conditions") or ():
        if entry.get("type") == kind:
            found: Mapping[str, Any] = entry
            return found
    return {}


def _main(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list(status.get("containerStatuses") or ())


def _init(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list(status.get("initContainerStatuses") or ())


def _problem(item: Object) -> tuple[str, str]:
    """Return what keeps a pod from being ready, with the platform's words."""
    status = item.get("status", {})
    scheduled = _condition(status, "PodScheduled")
    if scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable":
        return "Unschedulable", str(scheduled.get("message", ""))
    for entry in (*_init(status), *_main(status)):
        waiting = (entry.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in _IMAGE_REASONS:
            words = f"{entry.get('image', '')}: {waiting['reason']}: {waiting.get('message', '')}"
            return "ImagePullError", words.removesuffix(": ")
    for entry in (*_init(status), *_main(status)):
        ended = _failure(entry)
        if ended is not None:
            return "CrashLoop", _last_words(entry, ended)
    return "", ""


def _failure(entry: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return how a container that does not run now ended, if it failed."""
    state = entry.get("state") or {}
    if state.get("running") and not entry.get("restartCount"):
        return None
    for ended in (state.get("terminated"), (entry.get("lastState") or {}).get("terminated")):
        if ended and int(ended.get("exitCode", 0)) != 0:
            found: Mapping[str, Any] = ended
            return found
    return None


def _last_words(entry: Mapping[str, Any], ended: Mapping[str, Any]) -> str:
    code = int(ended.get("exitCode", 0))
    said = str(ended.get("message") or "").strip().splitlines()
    lines = [line for line in said if not _LOG_LINE.match(line)][-_LAST_LINES:]
    words = " | ".join(lines)[:MAX_WORDS]
    name = entry.get("name", "container")
    text = f"{name} ended with exit code {code}"
    if hint := _hint(code, str(ended.get("reason") or "")):
        text += f" ({hint})"
    return f"{text}: {words}" if words else text


def _hint(code: int, reason: str) -> str:
    """Return what an exit code means, where it says more than that something failed."""
    if code == _STORE_EXIT:
        return _store_hint()
    if reason == "OOMKilled":
        return "out of memory: see resources.limits.memory"
    return _SIGNALS.get(code, "")


@functools.cache
def _store_hint() -> str:
    """Return what keeps a broker from its store: the keys that its files depend on."""
    why = config_keys()["mappedFileSizeCommitLog"].source
    rows = [row for row in config_keys().values() if row.source == why and row.engine is None]
    keys = f"{', '.join(row.name for row in rows[:-1])} or {rows[-1].name}"
    return f"store was written with {keys} of another value, or a slave has no id above 0"


def _image(item: Object) -> str:
    for container in item.get("spec", {}).get("containers") or ():
        if container.get("name") == "broker":
            return str(container.get("image", ""))
    return ""


def _verdict(status: Mapping[str, Any]) -> tuple[Mapping[str, Any], float | None]:
    """Return what the init container ``verify`` said last, and when; empty when it said nothing."""
    for entry in _init(status):
        if entry.get("name") != "verify":
            continue
        for state in (entry.get("state"), entry.get("lastState")):
            ended = (state or {}).get("terminated") or {}
            if ended.get("message"):
                return _parsed(ended["message"]), from_time(ended.get("finishedAt"))
    return {}, None


def _parsed(said: str) -> Mapping[str, Any]:
    try:
        verdict = json.loads(said.strip().splitlines()[-1])
    except (ValueError, IndexError):
        return {}
    return verdict if isinstance(verdict, dict) else {}


def _words(verdict: Mapping[str, Any]) -> str:
    """Return a sentence about a verdict; the platform's numbers where they matter."""
    prefix, end = verdict.get("prefix", ""), verdict.get("ownEnd")
    if prefix == "TooFarBehind":
        return f"master starts at {verdict.get('masterStart')}, slave ends at {end}"
    words = str(verdict.get("message", ""))
    if prefix == "Diverged":
        words = words or str(verdict.get("detail", ""))
    if not words and prefix and prefix not in MAY_START:
        return f"master ends at {verdict.get('masterEnd')}, slave ends at {end}"
    return words


def _bytes(verdict: Mapping[str, Any], key: str) -> int | None:
    found = verdict.get(key)
    return found if isinstance(found, int) else None


def _tail_bytes(verdict: Mapping[str, Any]) -> int | None:
    """Return how much of a diverged log the master's lacks or has differently."""
    end = _bytes(verdict, "ownEnd")
    begin = _bytes(verdict, "differsAt" if "differsAt" in verdict else "masterEnd")
    if verdict.get("prefix") not in ("Diverged", "SlaveAhead") or end is None or begin is None:
        return None
    return max(0, end - begin)


def decode_claim(item: Object) -> Claim:
    """Return a claim as planning sees it."""
    spec, status, metadata = item.get("spec", {}), item.get("status", {}), item["metadata"]
    resizing = _condition(status, "Resizing").get("status") == "True"
    pending = _condition(status, "FileSystemResizePending")
    failed = [
        entry
        for entry in status.get("conditions") or ()
        if entry.get("type") in ("ControllerResizeError", "NodeResizeError")
    ]
    words = [str(entry.get("message", "")) for entry in failed]
    labels, marks = metadata.get("labels") or {}, metadata.get("annotations") or {}
    source = any(spec.get(key) for key in ("volumeName", "dataSource", "dataSourceRef"))
    return Claim(
        name=metadata["name"],
        uid=metadata["uid"],
        phase=status.get("phase", "Pending"),
        requested=spec.get("resources", {}).get("requests", {}).get("storage", ""),
        capacity=status.get("capacity", {}).get("storage", ""),
        resizing=resizing,
        needs_restart=pending.get("status") == "True",
        storage_class=spec.get("storageClassName") or "",
        message="; ".join(filter(None, words)),
        deleting="deletionTimestamp" in metadata,
        empty=status.get("phase", "Pending") == "Pending" and not source,
        owner=(
            labels.get("failback.dev/cluster", ""),
            labels.get("failback.dev/pair", ""),
            labels.get("failback.dev/member", ""),
        ),
        role=labels.get(common.ROLE_LABEL, ""),
        epoch=_number(marks.get(common.EPOCH)),
        log_id=marks.get(common.LOG_ID, ""),
        log_end=_number(marks.get(common.LOG_END)),
        log_end_at=from_time(marks.get(common.LOG_END_AT)),
        opened_by=marks.get(common.OPENED_BY, ""),
        marked_uid=marks.get(common.MARKED_UID, ""),
    )


def _number(text: str | None) -> int | None:
    """Return a number that is written down; a text that is none says nothing."""
    return int(text) if text is not None and text.isdecimal() and text.isascii() else None


def member_of(item: Object) -> tuple[int, int] | None:
    """Return pair and ordinal in an object's labels, or ``None``."""
    labels = item["metadata"].get("labels", {})
    pair, ordinal = labels.get("failback.dev/pair"), labels.get("failback.dev/member")
    if pair is None or ordinal is None or not (pair.isdigit() and ordinal.isdigit()):
        return None
    return int(pair), int(ordinal)


def is_pod_of(pod: Object, statefulset: str, index: str = "0") -> bool:
    """Tell whether a pod is the one of a StatefulSet, by its name and its controller.

    Labels say nothing: anybody may copy them. A pod that has lost its StatefulSet counts, and one
    whose StatefulSet was made again: its process may still run, and no other pod can have its name.
    """
    metadata = pod["metadata"]
    if metadata["name"] != f"{statefulset}-{index}":
        return False
    owners: Iterable[Mapping[str, Any]] = metadata.get("ownerReferences") or ()
    controllers = [each for each in owners if each.get("controller")]
    return all(
        (each.get("kind"), each.get("name")) == ("StatefulSet", statefulset) for each in controllers
    )


def is_owned(item: Object, uid: str) -> bool:
    """Tell whether an object has our custom resource as its controller."""
    owners: Iterable[Mapping[str, Any]] = item["metadata"].get("ownerReferences") or ()
    return any(owner.get("uid") == uid and owner.get("controller") for owner in owners)
