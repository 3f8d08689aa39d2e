"""``kubectl failback status``: a cluster on one screen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from failback.cli.kubectl.access import HERE, Access, Where, command, member_name
from failback.cli.kubectl.conditions import condition_of, is_well, waits
from failback.cli.shared.asking import NotThere
from failback.cli.shared.options import JsonOption, argument
from failback.cli.shared.output import print_json, print_table, say
from failback.common.text import typed

Object = Mapping[str, Any]
_OVER: Final = frozenset({"Complete", "Failed", "Completed", "Aborted"})
_NOBODY: Final = dict.fromkeys(
    ("member", "role", "wantedRole", "ready", "lag", "metadataSynced", "restarts")
)
"""What is shown of a pair whose members the status leaves out."""


@command("status", "kubectl failback status orders -n shop", "kubectl failback status")
def status(
    cluster: Annotated[str, argument("CLUSTER", "A BrokerCluster (default: all there are).")] = "",
    where: Where = HERE,
    json: JsonOption = False,
) -> None:
    """Show pairs, members, who is master, lag, operations, what they wait for, conditions."""
    with where.access() as api:
        items = [api.need("BrokerCluster", cluster)] if cluster else api.list_all("BrokerCluster")
        if not items:
            raise NotThere(f"no BrokerCluster in namespace {api.namespace}")
        found = [document(api, item) for item in items]
    if json:
        print_json(found[0] if cluster else found)
        return
    for number, each in enumerate(found):
        if number:
            say("")
        _show(each)


def document(api: Access, item: Object) -> dict[str, Any]:
    """Return what is shown of a cluster, for machines too."""
    metadata, state = item["metadata"], item.get("status") or {}
    name = str(metadata["name"])
    return {
        "cluster": name,
        "namespace": api.namespace,
        "engine": _engine(item),
        "pairs": [_pair(each) for each in state.get("pairs") or ()],
        "readyPairs": state.get("readyPairs"),
        "operations": operations(state),
        "waiting": _waiting(api, name),
        "pendingRestarts": state.get("pendingRestarts") or [],
        "conditions": state.get("conditions") or [],
    }


def operations(state: Object) -> list[Object]:
    """Return the operations in a cluster's status, the one that comes first in front."""
    first = state.get("currentOperation")
    return [*([first] if first else ()), *(state.get("otherOperations") or ())]


def _engine(item: Object) -> str:
    engine = (item.get("spec") or {}).get("engine") or {}
    words = [
        str(engine.get("type") or "Failback").lower(),
        engine.get("version"),
        engine.get("rules"),
    ]
    return " ".join(str(word) for word in words if word)


def _pair(pair: Object) -> dict[str, Any]:
    return {
        **{key: pair.get(key) for key in ("name", "index", "phase", "writable")},
        "master": pair.get("master") or None,
        "members": [
            {
                "member": member_name(pair, int(each["ordinal"])),
                **{key: each.get(key) for key in ("ready", "lag", "restarts", "address", "prefix")},
                "role": each.get("observedRole"),
                "wantedRole": each.get("desiredRole"),
                "metadataSynced": each.get("metadataSynced"),
            }
            for each in pair.get("members") or ()
        ],
    }


def _waiting(api: Access, cluster: str) -> list[dict[str, Any]]:
    """Return the role switches and experiments on a cluster that have not begun, or go on."""
    found = []
    for kind in ("RoleSwitch", "ChaosExperiment"):
        for each in api.list_all(kind):
            state = each.get("status") or {}
            if each["spec"]["clusterRef"]["name"] != cluster or state.get("finishedAt"):
                continue
            found.append(
                {
                    "kind": kind,
                    "name": str(each["metadata"]["name"]),
                    "phase": str(state.get("phase") or "Pending"),
                    "blockedBy": state.get("blockedBy") or [],
                }
            )
    return [each for each in found if each["phase"] not in _OVER]


def _show(found: Mapping[str, Any]) -> None:
    ready = condition_of(found, "Ready")
    how = _sentence(ready) if ready else "not looked at yet"
    say(f"{found['namespace']}/{found['cluster']}, {found['engine']}: {how}")
    rows = [
        (
            pair["name"],
            pair["phase"],
            member["member"],
            _role(pair, member),
            _yes_no(member["ready"]),
            member["lag"],
            _yes_no(member["metadataSynced"]),
            member["restarts"],
        )
        for pair in found["pairs"]
        for member in pair["members"] or [_NOBODY]
    ]
    if rows:
        headers = ("PAIR", "PHASE", "MEMBER", "ROLE", "READY", "LAG", "OFFSETS SYNCED", "RESTARTS")
        print_table(headers, rows)
    for pair in found["pairs"]:
        if not pair["master"]:
            say(f"{pair['name']}: no member is registered as master")
        elif pair["writable"] is False:
            say(f"{pair['name']}: takes no messages")
    for line in operation_lines(found):
        say(line)
    conditions = [
        (each["type"], each["status"], each["reason"], each.get("message"))
        for each in found["conditions"]
    ]
    if conditions:
        say("")
        print_table(("CONDITION", "STATUS", "REASON", "MESSAGE"), conditions)
    if any(not is_well(each) for each in found["conditions"]):
        words = ("why", found["cluster"], "-n", found["namespace"])
        say(f"What to do: {typed('kubectl', 'failback', *words)}")


def operation_lines(found: Mapping[str, Any]) -> list[str]:
    """Return what runs and what waits, a line each."""
    lines = []
    for each in found["operations"]:
        where = "" if each.get("pair") is None else f" of pair {each['pair']}"
        since = f", since {each['startedAt']}" if each.get("startedAt") else ""
        step = f", at {each['step']}" if each.get("step") else ""
        lines.append(f"Runs: {each['type']}{where}{step}{since}{_blocked(each)}")
    lines += [
        f"{each['phase']}: {each['kind']}/{each['name']}{_blocked(each)}"
        for each in found["waiting"]
    ]
    for each in found["pendingRestarts"]:
        reasons = ", ".join(each.get("reasons") or ())
        lines.append(f"Waits for a restart: {each['member']} ({reasons})")
    return lines


def _blocked(found: Object) -> str:
    blocked = [f"{waits(each)} ({each})" for each in found.get("blockedBy") or ()]
    return f"; waits for: {', '.join(blocked)}" if blocked else ""


def _role(pair: Object, member: Object) -> str:
    role, wanted = member["role"], member["wantedRole"]
    if role is None:
        return f"({str(wanted).lower()})" if wanted else ""
    text = str(role).lower()
    return text if wanted in (None, role) else f"{text}, not {str(wanted).lower()}"


def _yes_no(value: bool | None) -> str:
    return "" if value is None else "yes" if value else "no"


def _sentence(condition: Object) -> str:
    value = {"True": "Ready", "False": "not Ready"}.get(condition["status"], "Ready is unknown")
    message = f": {condition['message']}" if condition.get("message") else ""
    return f"{value} ({condition['reason']}){message}"
