"""``kubectl failback switch``: order a RoleSwitch and follow it to its end."""

from __future__ import annotations

import time
from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Any, Final

import typer

from failback.cli.kubectl.access import (
    HERE,
    Access,
    ClusterArgument,
    Where,
    command,
    member_at,
    member_name,
    pair_at,
)
from failback.cli.kubectl.conditions import waits
from failback.cli.shared.errors import FAIL, INCONCLUSIVE, PASS, REFUSED
from failback.cli.shared.options import JsonOption, argument, flag, option
from failback.cli.shared.output import note, print_json, say
from failback.common.numbers import seconds
from failback.common.text import typed

Object = Mapping[str, Any]
_POLL_SECONDS: Final = 0.5
_MARGIN_SECONDS: Final = 120
"""An undo ends so long after the switch's own limit, at the latest."""


class OffsetPolicy(Enum):
    """What happens to consumer offsets."""

    COPY_MAX = "CopyMax"
    WAIT_SYNC = "WaitSync"
    NONE = "None"


@command(
    "switch",
    "kubectl failback switch orders 0 1             planned: the master hands over",
    "kubectl failback switch orders 0 1 --forced    the master will not come back",
)
def switch(
    cluster: ClusterArgument,
    pair: Annotated[str, argument("PAIR", "Index or broker name of the pair.")],
    member: Annotated[str, argument("MEMBER", "Who becomes master: ordinal or name.")],
    forced: Annotated[
        bool, flag("--forced", "The old master is gone for good; its last messages may be lost.")
    ] = False,
    offset_policy: Annotated[
        OffsetPolicy, option("--offset-policy", "", "What happens to consumer offsets.")
    ] = OffsetPolicy.COPY_MAX,
    timeout_seconds: Annotated[
        int, option("--timeout", "SECONDS", "How long it may take.", min=60, max=7200)
    ] = 600,
    wait: Annotated[bool, flag("--wait/--no-wait", "Follow the switch to its end.")] = True,
    where: Where = HERE,
    json: JsonOption = False,
) -> None:
    """Make another member of a pair its master, and follow the switch to its end.

    Ends with 0 when it is complete, 1 when it failed or was undone, 4 when it was refused before
    anything was touched, 3 when its end was not seen.
    """
    with where.access() as api:
        item = api.need("BrokerCluster", cluster)
        found = pair_at(item, pair)
        ordinal = member_at(item, found, member)
        order = _order(cluster, found, ordinal)
        order["metadata"]["namespace"] = api.namespace
        order["spec"] |= {
            "mode": "Forced" if forced else "Planned",
            "offsetPolicy": offset_policy.value,
            "timeoutSeconds": timeout_seconds,
        }
        made = api.kube.create(order)
        name = str(made["metadata"]["name"])
        target = member_name(found, ordinal)
        note(f"RoleSwitch/{name}: {target} becomes master of {found['name']}")
        if not wait:
            if json:
                print_json(made)
            return
        try:
            last = _follow(api, name, timeout_seconds + _MARGIN_SECONDS)
        except KeyboardInterrupt:
            note(f"the switch goes on; see: {_why(name)}")
            raise
    if json:
        print_json(last)
    raise typer.Exit(_tell(last, quiet=json))


def _order(cluster: str, pair: Object, ordinal: int) -> dict[str, Any]:
    return {
        "apiVersion": "failback.dev/v1alpha1",
        "kind": "RoleSwitch",
        "metadata": {"generateName": f"{cluster}-{pair['index']}-to-{ordinal}-"},
        "spec": {
            "clusterRef": {"name": cluster},
            "pair": pair["name"],
            "targetMember": ordinal,
        },
    }


def _follow(api: Access, name: str, most_seconds: float) -> Object:
    """Print each step of a switch as it ends; return the object at the end of the last."""
    began, told = time.monotonic(), [""]
    shown = 0
    while True:
        item = api.need("RoleSwitch", name)
        state = item.get("status") or {}
        done = [each for each in state.get("steps") or () if each.get("finishedAt")]
        for each in done[shown:]:
            note(f"{time.monotonic() - began:6.1f} s  {each['name']}")
        shown = len(done)
        blocked = ", ".join(waits(each) for each in state.get("blockedBy") or ())
        if blocked and blocked != told[-1]:
            note(f"{time.monotonic() - began:6.1f} s  waits for: {blocked}")
            told.append(blocked)
        if state.get("phase") in ("Complete", "Failed"):
            return item
        if time.monotonic() - began > most_seconds:
            return item
        time.sleep(_POLL_SECONDS)


def _tell(item: Object, *, quiet: bool) -> int:
    """Say how a switch ended; return the exit code."""
    state = item.get("status") or {}
    by_type = {each["type"]: each for each in state.get("conditions") or ()}
    complete, failed, safe = (by_type.get(each, {}) for each in ("Complete", "Failed", "Safe"))
    if complete.get("status") == "True":
        code, text = PASS, f"{state.get('toMember')} is master"
        outages = [
            f"{side} stood still for {seconds(state[field])}"
            for side, field in (("writes", "writeOutageSeconds"), ("reads", "readOutageSeconds"))
            if state.get(field) is not None
        ]
        text = ", ".join([text, *outages])
    elif failed.get("status") == "True":
        code = REFUSED if failed["reason"] in ("Preflight", "LeaseHeld") else FAIL
        text = f"{failed['reason']}: {failed.get('message') or 'nothing more is known'}"
    else:
        name = item["metadata"]["name"]
        code = INCONCLUSIVE
        text = f"no end was seen; look again: {_why(name)}"
    if not quiet:
        say(text)
        if safe.get("status") == "False":
            say(f"Not safe ({safe['reason']}): {safe.get('message')}")
    return code


def _why(name: str) -> str:
    return typed("kubectl", "failback", "why", f"roleswitch/{name}")
