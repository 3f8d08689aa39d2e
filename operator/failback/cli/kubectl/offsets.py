"""``kubectl failback offsets``: save consumer offsets, show them, and restore them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Final

import typer

from failback.cli.kubectl.access import HERE, Access, ClusterArgument, Where, command
from failback.cli.kubectl.conditions import condition_of
from failback.cli.shared.asking import NotThere, Unreachable
from failback.cli.shared.commands import new_group
from failback.cli.shared.errors import PASS, REFUSED
from failback.cli.shared.options import JsonOption, argument, flag, option
from failback.cli.shared.output import print_json, print_table, say
from failback.common.numbers import count
from failback.common.text import typed

Object = Mapping[str, Any]
KIND: Final = "OffsetSnapshot"
_SECONDS: Final = 120.0
_POLL_SECONDS: Final = 0.5
_DECIDED: Final = ("PreviewReady", "GroupOnline", "GroupMissing", "SnapshotMissing", "Restored")
"""Reasons of the condition Restored that a wait ends with."""
NameArgument = Annotated[str, argument("NAME", "Name of the OffsetSnapshot.")]
GroupsOption = Annotated[
    list[str] | None, option("--group, -g", "GROUP", "Only this group (default: all).")
]


@command("list", "kubectl failback offsets list -n shop")
def list_all(
    where: Where = HERE,
    json: JsonOption = False,
) -> None:
    """List the OffsetSnapshots of a namespace."""
    with where.access() as api:
        items = api.list_all(KIND)
    if json:
        print_json(items)
        return
    rows = [
        (
            item["metadata"]["name"],
            item["spec"]["clusterRef"]["name"],
            item["spec"].get("every"),
            len(_status(item).get("snapshots") or ()),
            _status(item).get("lastSnapshot"),
            (_status(item).get("restore") or {}).get("phase"),
        )
        for item in items
    ]
    print_table(("NAME", "CLUSTER", "EVERY", "KEPT", "LAST", "RESTORE"), rows)


@command("show", "kubectl failback offsets show nightly")
def show(
    name: NameArgument,
    where: Where = HERE,
    json: JsonOption = False,
) -> None:
    """Show the snapshots of an OffsetSnapshot, and the preview or outcome of its restore."""
    with where.access() as api:
        item = api.need(KIND, name)
    if json:
        print_json(_status(item))
        return
    _show(item)


@command(
    "save",
    "kubectl failback offsets save orders",
    "kubectl failback offsets save orders --group billing",
)
def save(
    cluster: ClusterArgument,
    groups: GroupsOption = None,
    where: Where = HERE,
    json: JsonOption = False,
) -> None:
    """Keep the offsets of a cluster as they are now, in a new OffsetSnapshot."""
    with where.access() as api:
        api.need("BrokerCluster", cluster)
        spec: dict[str, Any] = {"clusterRef": {"name": cluster}}
        if groups:
            spec["groups"] = groups
        made = api.kube.create(
            {
                "apiVersion": "failback.dev/v1alpha1",
                "kind": KIND,
                "metadata": {"generateName": f"{cluster}-", "namespace": api.namespace},
                "spec": spec,
            }
        )
        name = str(made["metadata"]["name"])
        item = _wait(api, name, lambda each: bool(_status(each).get("snapshots")), "Ready")
    if json:
        print_json(item)
        return
    (entry,) = _status(item)["snapshots"]
    say(f"{name}: {count(entry['offsets'])} offsets of {count(entry['groups'])} groups are kept")
    missing = len(set(groups or ())) - int(entry["groups"])
    if groups and "*" not in groups and missing > 0:
        raise NotThere(f"{missing} of the groups that were named have no offsets on any pair")


@command(
    "restore",
    "kubectl failback offsets restore nightly --group billing",
    "kubectl failback offsets restore nightly --confirm 3f9c01ab22d7",
)
def restore(
    name: NameArgument,
    snapshot: Annotated[str, option("--snapshot", "NAME", "Which of its snapshots.")] = "latest",
    groups: GroupsOption = None,
    online: Annotated[bool, flag("--online", "Write groups with running members too.")] = False,
    confirm: Annotated[str, option("--confirm", "ID", "Carry out the preview with this id.")] = "",
    where: Where = HERE,
    json: JsonOption = False,
) -> None:
    """Preview what giving offsets back would repeat or skip; with --confirm give them back.

    With --confirm the other options are those of the preview. Ends with 0 when the preview is
    there, or what was confirmed is done, and with 4 when it was refused.
    """
    with where.access() as api:
        api.need(KIND, name)
        wanted: dict[str, Any] = {
            "snapshot": snapshot,
            "groups": groups or ["*"],
            "online": online,
            "confirm": None,
        }
        if not confirm:  # a preview of before is not taken for the one that is asked for
            api.kube.merge(KIND, api.namespace, name, {"spec": {"restore": None}})
        patch = {"spec": {"restore": {"confirm": confirm} if confirm else wanted}}
        made = api.kube.merge(KIND, api.namespace, name, patch)
        generation = int(made["metadata"]["generation"])
        item = _wait(api, name, lambda each: _is_decided(each, generation), "Restored")
    if json:
        print_json(_status(item))
    else:
        _show(item)
    done = ("Restored",) if confirm else ("Restored", "PreviewReady")
    reason = str(condition_of(_status(item), "Restored")["reason"])
    raise typer.Exit(PASS if reason in done else REFUSED)


def _is_decided(item: Object, generation: int) -> bool:
    found = condition_of(_status(item), "Restored")
    seen = int(found.get("observedGeneration") or 0) >= generation
    return seen and found["reason"] in _DECIDED


def _wait(api: Access, name: str, is_so: Callable[[Object], bool], condition: str) -> Object:
    """Return the object once it is so.

    Raises:
        Unreachable: It is not within two minutes; the condition says why.
    """
    until = time.monotonic() + _SECONDS
    while True:
        item = api.need(KIND, name)
        if is_so(item):
            return item
        if time.monotonic() > until:
            found = condition_of(_status(item), condition)
            why = found.get("message") or found.get("reason") or "does an operator run?"
            raise Unreachable(f"{KIND}/{name}: {why}")
        time.sleep(_POLL_SECONDS)


def _status(item: Object) -> Mapping[str, Any]:
    found: Mapping[str, Any] = item.get("status") or {}
    return found


def _show(item: Object) -> None:
    state = _status(item)
    rows = [
        (each["name"], each["takenAt"], count(each["groups"]), count(each["offsets"]))
        for each in state.get("snapshots") or ()
    ]
    if rows:
        print_table(("SNAPSHOT", "TAKEN", "GROUPS", "OFFSETS"), rows)
    else:
        say("No snapshot yet.")
    found = state.get("restore")
    if found is not None:
        say("")
        _show_restore(found)
    for kind in ("Ready", "Restored"):
        told = condition_of(state, kind)
        if told and told["status"] != "True":
            say(f"{kind} is {told['status']}, {told['reason']}: {told['message']}")
    if found is not None and condition_of(state, "Restored").get("reason") == "PreviewReady":
        name = item["metadata"]["name"]
        where = item["metadata"]["namespace"]
        words = ("offsets", "restore", name, "-n", where, "--confirm", found["id"])
        say(typed("kubectl", "failback", *words))


def _show_restore(found: Object) -> None:
    say(f"Restore of {found['snapshot']}: {found['phase']}")
    rows = [
        (
            each["group"],
            count(each["redelivered"]),
            count(each["skipped"]),
            count(each["ahead"]),
            each["leftAlone"],
            "yes" if each["online"] else "no",
        )
        for each in found.get("groups") or ()
    ]
    headers = ("GROUP", "RE-CONSUMED", "SKIPPED", "THEN AHEAD", "LEFT ALONE", "ONLINE")
    print_table(headers, rows)
    queues = [
        (each["group"], each["pair"], each["topic"], each["queue"], each.get("fromOffset"),
         each["toOffset"])
        for each in found.get("queues") or ()
    ]  # fmt: skip
    if queues:
        print_table(("GROUP", "PAIR", "TOPIC", "QUEUE", "FROM", "TO"), queues)
    if found.get("moreQueues"):
        say(f"and {count(found['moreQueues'])} more queues")


_TAKE: Final = replace(
    save,
    name="take",
    examples=tuple(each.replace(" save ", " take ") for each in save.examples),
    hidden=True,
)
"""What ``save`` was called first."""
app = new_group(
    "Keep consumer offsets as objects, look at them, and give them back.",
    *(list_all, show, save, _TAKE, restore),
    examples=(
        "kubectl failback offsets save orders",
        "kubectl failback offsets restore orders-k2x9q                    only a preview",
        "kubectl failback offsets restore orders-k2x9q --confirm 3f9c01ab22d7",
    ),
)
