"""``kubectl failback why``: why a resource is not as wanted, in words, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from failback.cli.kubectl.access import HERE, Access, Where, command, kind_of
from failback.cli.kubectl.conditions import advice, unwell, waits
from failback.cli.kubectl.status import operation_lines, operations
from failback.cli.shared.asking import NotThere
from failback.cli.shared.options import JsonOption, argument
from failback.cli.shared.output import print_json, say
from failback.common.text import did_you_mean
from failback.kube.resources import SHORT_NAMES

Object = Mapping[str, Any]
_EVENTS: Final = 5


@command("why", "kubectl failback why orders", "kubectl failback why roleswitch/orders-0-to-1")
def why(
    name: Annotated[str, argument("NAME", "Name of a resource of ours, or KIND/NAME.")],
    where: Where = HERE,
    json: JsonOption = False,
) -> None:
    """Say why a resource is not Ready or Complete, what it waits for, and what to do.

    Words and advice are those of the documented reasons; the latest warnings are its events.
    """
    with where.access() as api:
        found = [document(api, each) for each in _named(api, name)]
    if json:
        print_json(found)
        return
    for number, each in enumerate(found):
        if number:
            say("")
        for line in lines(each):
            say(line)


def _named(api: Access, name: str) -> list[Object]:
    """Return the resources of a name; of one kind if the name says which."""
    kind, slash, rest = name.partition("/")
    if slash:
        return [api.need(kind_of(kind), rest)]
    found = [each for kind in SHORT_NAMES if (each := api.kube.get(kind, api.namespace, name))]
    if found:
        return list(found)
    names = {str(each["metadata"]["name"]) for kind in SHORT_NAMES for each in api.list_all(kind)}
    near = did_you_mean(name, names)
    raise NotThere(f'no resource of ours is called "{name}" in namespace {api.namespace}{near}')


def document(api: Access, item: Object) -> dict[str, Any]:
    """Return what is said of a resource, for machines too."""
    state = item.get("status") or {}
    conditions = state.get("conditions") or []
    problems = []
    for each in unwell(conditions):
        told = advice(str(each["type"]), str(each["reason"]))
        problems.append(
            {
                **{key: each.get(key) for key in ("type", "status", "reason", "message")},
                "since": each.get("lastTransitionTime"),
                "means": told.means if told else None,
                "do": told.do if told else None,
            }
        )
    return {
        "kind": item["kind"],
        "name": item["metadata"]["name"],
        "phase": state.get("phase"),
        "seen": bool(conditions),
        "deleting": item["metadata"].get("deletionTimestamp"),
        "problems": problems,
        "blockedBy": state.get("blockedBy") or [],
        "operations": operations(state) if item["kind"] == "BrokerCluster" else [],
        "warnings": _warnings(api, item),
    }


def _warnings(api: Access, item: Object) -> list[dict[str, Any]]:
    """Return the latest warnings about an object, newest first."""
    uid = item["metadata"]["uid"]
    found = [
        each
        for each in api.list_all("Event")
        if each.get("type") == "Warning" and each.get("involvedObject", {}).get("uid") == uid
    ]
    found.sort(key=lambda each: str(each.get("lastTimestamp") or ""), reverse=True)
    return [
        {"at": each.get("lastTimestamp"), "reason": each["reason"], "message": each["message"]}
        for each in found[:_EVENTS]
    ]


def lines(found: Mapping[str, Any]) -> list[str]:
    """Return a document as lines for people."""
    label = f"{found['kind']}/{found['name']}"
    phase = f" ({found['phase']})" if found["phase"] else ""
    if not found["seen"]:
        head = "no operator has looked at it yet: is one running, and does it watch this namespace?"
        return [f"{label}{phase}: {head}"]
    if not found["problems"]:
        return [f"{label}{phase}: all is as wanted", *_rest(found)]
    shown = [f"{label}{phase}:"]
    for each in found["problems"]:
        message = f": {each['message']}" if each["message"] else ""
        shown.append(f"  {each['type']} is {each['status']}, {each['reason']}{message}")
        if each["means"]:
            shown.append(f"    means: {each['means']}")
        if each["do"] and each["do"] != "nothing":
            shown.append(f"    do:    {each['do']}")
    return [*shown, *_rest(found)]


def _rest(found: Mapping[str, Any]) -> list[str]:
    shown = []
    if found["deleting"]:
        shown.append(f"  It is being deleted since {found['deleting']}.")
    if found["blockedBy"]:
        blocked = ", ".join(f"{waits(each)} ({each})" for each in found["blockedBy"])
        shown.append(f"  Waits for: {blocked}")
    work = {"operations": found["operations"], "waiting": [], "pendingRestarts": []}
    shown += [f"  {line}" for line in operation_lines(work)]
    if found["warnings"]:
        shown.append("  Latest warnings:")
        shown += [
            f"    {each['at'] or ''} {each['reason']}: {each['message']}"
            for each in found["warnings"]
        ]
    return shown
