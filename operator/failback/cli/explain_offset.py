"""``failback explain-offset``: the story of one consumer offset, and where to go on from."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from failback.cli.admin import NamesrvOption, RootOption
from failback.cli.cluster import JsonOption
from failback.cli.errors import guarded
from failback.cli.output import print_json, print_table, say
from failback.protocol.errors import ConfigError

if TYPE_CHECKING:
    from failback.analytics.history import GroupQueue, History
    from failback.analytics.lineage import Lineage

NS: Final = 1_000_000_000
_UNSEEN_LIVE: Final = ("client memory", "commits", "master file", "earlier values")


def register(app: typer.Typer) -> None:
    """Add the command to the root."""
    app.command("explain-offset")(explain_offset)


@guarded
def explain_offset(
    group: Annotated[str, typer.Argument(help="Consumer group; broadcast: GROUP@CLIENT_ID.")],
    topic: Annotated[str, typer.Argument(help="Topic, %RETRY% topics included.")],
    queue: Annotated[int, typer.Argument(help="Queue id.", min=0)],
    run: Annotated[Path | None, typer.Option("--run", help="Folder of a recorded run.")] = None,
    live: Annotated[bool, typer.Option("--live", help="Ask the brokers as they are now.")] = False,
    at: Annotated[
        str, typer.Option("--at", help="Until then: seconds after run zero, or an ISO time.")
    ] = "",
    broker: Annotated[str, typer.Option("--broker", help="Broker name, if several have it.")] = "",
    namesrv: NamesrvOption = "",
    root: RootOption = None,
    json: JsonOption = False,
) -> None:
    """Tell who held which offset of a queue when, where it fell back, and the safe one to set."""
    if live == (run is not None):
        raise ConfigError("--run", "give a run's folder, or --live")
    if live and at:
        raise ConfigError("--at", "is for a recorded run; --live is now")
    found = (
        _live(namesrv, root, group, topic, queue, broker)
        if run is None
        else _recorded(run, group, topic, queue, broker, at)
    )
    if json:
        print_json(found)
    else:
        _show(found)


def _recorded(
    folder: Path, group: str, topic: str, queue: int, broker: str, at: str
) -> dict[str, Any]:
    from failback.analytics.history import read_history
    from failback.analytics.lake import open_lake
    from failback.analytics.lineage import lineage
    from failback.analytics.run_folder import read_run_folder

    opened = read_run_folder(folder)
    history = read_history(opened, open_lake(opened.lake, opened.run_id))
    key = _chosen(history, group, topic, queue, broker)
    return _document(lineage(history, key, _instant(at, opened.zero_wall_ns)), folder)


def _chosen(history: History, group: str, topic: str, queue: int, broker: str) -> GroupQueue:
    from failback.analytics.lineage import queues_named

    found = queues_named(history, group, topic, queue)
    kept = [key for key in found if broker in ("", key.broker)]
    if not kept:
        where = f" on {broker}" if broker else ""
        raise ConfigError("QUEUE", f"the run knows no queue {queue} of {topic} for {group}{where}")
    if len(kept) > 1:
        names = ", ".join(f"{key.broker} ({key.grp})" for key in kept)
        raise ConfigError("--broker", f"several have this queue: {names}")
    return kept[0]


def _instant(text: str, zero_wall_ns: int) -> int:
    """Nanoseconds after run zero."""
    from failback.analytics.definitions import instant_ns

    if not text:
        return (1 << 62) - 1
    try:
        return instant_ns(text, zero_wall_ns)
    except ValueError as error:
        raise ConfigError("--at", str(error)) from error


def _document(found: Lineage, folder: Path) -> dict[str, Any]:
    key = found.queue
    steps = [asdict(step) for step in found.steps]
    return {
        "source": str(folder),
        "group": key.grp,
        "broker": key.broker,
        "topic": key.ptopic,
        "queue": key.qid,
        "steps": steps,
        "fell_at": None if found.fell_at is None else found.steps.index(found.fell_at),
        "safe_offset": found.safe_offset,
        "command": set_command(key.grp, key.ptopic, key.broker, key.qid, found.safe_offset),
        "unseen": list(found.unseen),
    }


def set_command(group: str, topic: str, broker: str, queue: int, offset: int | None) -> str | None:
    """What stores an offset on the master."""
    if offset is None:
        return None
    words = ("failback", "admin", "resetOffset", "--group", group, "--topic", topic)
    return shlex.join((*words, "--broker", broker, "--queue", str(queue), "--offset", str(offset)))


def _live(
    namesrv: str, root: Path | None, group: str, topic: str, queue: int, broker: str
) -> dict[str, Any]:
    from failback.cli.admin import ask_brokers
    from failback.client.admin import AdminClient
    from failback.protocol.errors import BrokerError, RemotingError

    async def ask(admin: AdminClient) -> dict[str, Any]:
        route = await admin.route(topic)
        having = {d.broker_name for d in route.queue_datas if queue < d.read_queue_nums}
        names = sorted(having & {broker} if broker else having)
        if len(names) != 1:
            some = ", ".join(sorted(having)) or "no broker"
            raise ConfigError("--broker", f"name one that has queue {queue} of {topic}: {some}")
        (chosen,) = (data for data in route.broker_datas if data.broker_name == names[0])
        steps = []
        for bid, addr in sorted(chosen.broker_addrs.items()):
            try:
                table = await admin.all_offsets(addr)
            except (BrokerError, RemotingError) as error:
                steps.append(_live_step(bid, addr, None, f"did not answer: {error}"))
                continue
            offset = table.get(f"{topic}@{group}", {}).get(queue)
            steps.append(_live_step(bid, addr, offset, "holds" if offset is not None else "none"))
        known = [step["offset"] for step in steps if step["offset"] is not None]
        safe = max(known, default=None)
        for step in steps:
            if step["offset"] is not None:
                step["fell"] = (safe or 0) - step["offset"]
        behind = [at for at, step in enumerate(steps) if step["fell"]]
        return {
            "source": "live",
            "group": group,
            "broker": names[0],
            "topic": topic,
            "queue": queue,
            "steps": steps,
            "fell_at": behind[0] if behind else None,
            "safe_offset": safe,
            "command": set_command(group, topic, names[0], queue, safe),
            "unseen": list(_UNSEEN_LIVE),
        }

    found: dict[str, Any] = ask_brokers(namesrv, root, ask)
    return found


def _live_step(bid: int, addr: str, offset: int | None, what: str) -> dict[str, Any]:
    said = {"holds": f"{addr} holds {offset}", "none": f"{addr} has no entry"}.get(what)
    return {
        "t": None,
        "place": "master table" if bid == 0 else "slave table",
        "offset": offset,
        "fell": 0,
        "broker_id": bid,
        "incarnation": None,
        "what": said or f"{addr} {what}",
        "row": None,
    }


def _show(found: dict[str, Any]) -> None:
    say(f"{found['group']} on {found['topic']}, {found['broker']}, queue {found['queue']}")
    rows = [
        (
            "now" if step["t"] is None else f"{step['t'] / NS:.3f}",
            step["place"],
            step["offset"],
            f"-{step['fell']}" if step["fell"] else "",
            step["what"],
        )
        for step in found["steps"]
    ]
    print_table(("SECOND", "WHERE", "OFFSET", "FELL", "WHAT"), rows)
    if found["fell_at"] is not None:
        step = found["steps"][found["fell_at"]]
        say(f"It went down at the {step['place']}, by {step['fell']}: {step['what']}.")
    else:
        say("It never went down.")
    if found["unseen"]:
        say(f"Not seen: {', '.join(found['unseen'])}.")
    if found["command"]:
        say(f"Safe offset: {found['safe_offset']}. To set it: {found['command']}")
