"""``failback explain-offset``: the story of one consumer offset, and where to go on from."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from failback.carry.restoring import restore_command
from failback.cli.shared.asking import NotThere, ask
from failback.cli.shared.clusters import NO_CLUSTER, ClusterOptions, cluster_options
from failback.cli.shared.commands import command
from failback.cli.shared.errors import INCONCLUSIVE, fail
from failback.cli.shared.folders import one_run
from failback.cli.shared.options import JsonOption, argument, check_group_of_client, flag, option
from failback.cli.shared.output import print_json, print_table, say
from failback.client.admin.queue_offsets import ANSWER, MASTER_TABLE, SLAVE_TABLE
from failback.client.remoting.guarded.cluster import options_of
from failback.common.text import visible
from failback.common.times import of_day, utc, zone
from failback.protocol.errors import ConfigError

if TYPE_CHECKING:
    from failback.analytics.analysis.lineage import Lineage
    from failback.analytics.run.history import GroupQueue, History
    from failback.analytics.run.run_source import RunSource
    from failback.cli.measure.offset_now import Standing
    from failback.client.admin.admin import AdminClient

NS: Final = 1_000_000_000
_BROADCASTS: Final = (
    "the group broadcasts: each member keeps its own offsets, and those of brokers are old"
)

_NO_END: Final = "the end of the queue is not known, so no offset is recommended"


@command(
    "explain-offset",
    "failback explain-offset billing orders 0 --live               as it is now",
    "failback explain-offset billing orders 0 --run runs/d/handover",
)
@cluster_options()
def explain_offset(
    group: Annotated[
        str,
        argument(
            "GROUP", "Consumer group; broadcast: GROUP@CLIENT_ID.", callback=check_group_of_client
        ),
    ],
    topic: Annotated[str, argument("TOPIC", "Topic, %RETRY% topics included.")],
    queue: Annotated[int, argument("QUEUE", "Queue id, from 0.", min=0)],
    run: Annotated[
        str, option("--run", "RUN", "Folder of a recorded run, or a run's id in --lake.")
    ] = "",
    lake: Annotated[
        str,
        option(
            "--lake",
            "LAKE",
            "Where the run's rows are: a folder or s3://bucket/prefix"
            " (default: in the run folder).",
        ),
    ] = "",
    live: Annotated[bool, flag("--live", "Ask the brokers as they are now.")] = False,
    at: Annotated[
        str,
        option(
            "--at", "TIME", "Until then: seconds after run zero, or an ISO time (default: the end)."
        ),
    ] = "",
    broker: Annotated[str, option("--broker", "NAME", "Its name, if several have the queue.")] = "",
    cluster: ClusterOptions = NO_CLUSTER,
    json: JsonOption = False,
) -> None:
    """Tell who held which offset of a queue when, where it fell back, and the safe one to set."""
    if live == bool(run):
        raise ConfigError("--run", "give a run's folder, or --live")
    if live and lake:
        raise ConfigError("--lake", "is for a recorded run; --live is now")
    if live and at:
        raise ConfigError("--at", "is for a recorded run; --live is now")
    found = (
        _live(cluster, group, topic, queue, broker)
        if live
        else _recorded(
            _source(run, lake), f"{lake}: {run}" if lake else run, group, topic, queue, broker, at
        )
    )
    silent = found.get("silent") or []
    is_nowhere = live and not silent and not _has_offset(found)
    if json:
        print_json(found)
    elif not is_nowhere:
        _show(found)
    for line in silent:
        fail(visible(line))
    if is_nowhere:
        where = f"{topic}, queue {queue}, on {found['broker']}"
        near = found["near"] or ": is its name right?"
        raise NotThere(f'group "{group}" has no offset of {where}{near}')
    is_hidden = found.get("bound") == "not known"
    if is_hidden:
        fail(_hidden(found))
    if silent or is_hidden:
        raise typer.Exit(INCONCLUSIVE)


def _hidden(found: dict[str, Any]) -> str:
    """Return why no safe offset is named, and where one may stand."""
    from failback.analytics.live.facts import GroupTopic
    from failback.analytics.live.queues import explain_recorded

    recorded = explain_recorded(GroupTopic(found["group"], found["topic"]), found["queue"])
    copied = " and its slave has the same" if found["has_slave"] else ""
    return (
        f"the master restarted {found['master_restarted_seconds']:.0f} s ago{copied}:"
        " older offsets can't be seen any more. If an observer ran:"
        f" {recorded}"
    )


def _source(run: str, lake: str) -> RunSource:
    """The run of a folder, with its rows in ``lake`` if that is given; or a run of the lake."""
    from failback.analytics.observe.lake import run_at
    from failback.analytics.run.run_source import source_in_lake

    if not lake:
        return run_at(one_run(Path(run)))
    if (Path(run) / "run.json").exists():
        return source_in_lake(lake, documents=Path(run))
    return source_in_lake(lake, run)


def _recorded(
    source: RunSource, name: str, group: str, topic: str, queue: int, broker: str, at: str
) -> dict[str, Any]:
    from failback.analytics.analysis.lineage import lineage
    from failback.analytics.observe.lake import recorded_bound
    from failback.analytics.run.history_reading import read_history

    history = read_history(source.folder, source.lake)
    key = _chosen(history, group, topic, queue, broker)
    until = _instant(at, source.folder.zero_wall_ns)
    zero = source.folder.zero_wall_ns / NS
    found = lineage(history, source.lake, key, until)
    return _document(found, name, zero) | {"bound": recorded_bound(history, found).value}


def _chosen(history: History, group: str, topic: str, queue: int, broker: str) -> GroupQueue:
    from failback.analytics.analysis.lineage import queues_named

    found = queues_named(history, group, topic, queue)
    kept = [key for key in found if broker in ("", key.broker)]
    if not kept:
        raise _not_in_run(history, group, topic, queue, broker)
    if len(kept) > 1:
        names = ", ".join(f"{key.broker} ({key.grp})" for key in kept)
        raise ConfigError("--broker", f"several have this queue: {names}")
    return kept[0]


def _not_in_run(history: History, group: str, topic: str, queue: int, broker: str) -> ConfigError:
    """Say which of the names the run does not know, and what it has instead."""
    from failback.analytics.analysis.lineage import known_queues

    known = known_queues(history)
    groups = {key.grp for key in known} | {key.grp.rsplit("@", 1)[0] for key in known}
    of_group = [key for key in known if group in (key.grp, key.grp.rsplit("@", 1)[0])]
    topics = {key.ptopic for key in of_group}
    of_topic = [key for key in of_group if key.ptopic == topic]
    queues = {str(key.qid) for key in of_topic}
    if not of_group:
        return _no_such("GROUP", f'group "{group}" is not in this run', groups)
    if not of_topic:
        return _no_such("TOPIC", f'group "{group}" has no topic "{topic}" in this run', topics)
    if str(queue) not in queues:
        return _no_such("QUEUE", f"topic {topic} has no queue {queue} in this run", queues)
    brokers = {key.broker for key in of_topic if key.qid == queue}
    return _no_such("--broker", f'"{broker}" has no queue {queue} of {topic}', brokers)


def _no_such(field: str, problem: str, known: Iterable[str]) -> ConfigError:
    names = sorted(known, key=lambda name: (len(name), name))
    return ConfigError(field, f"{problem}; it has: {', '.join(names) or 'none'}")


def _instant(text: str, zero_wall_ns: int) -> int:
    """Nanoseconds after run zero."""
    from failback.analytics.run.definitions import instant_ns

    if not text:
        return (1 << 62) - 1
    try:
        return instant_ns(text, zero_wall_ns, time.time_ns())
    except ValueError as error:
        raise ConfigError("--at", str(error)) from error


def _document(found: Lineage, source: str, zero: float) -> dict[str, Any]:
    from failback.analytics.live.queues import reset_command

    key = found.queue
    steps = [asdict(step) | {"at": utc(zero + step.t / NS)} for step in found.steps]
    return {
        "source": source,
        "zero": utc(zero),
        "group": key.grp,
        "broker": key.broker,
        "topic": key.ptopic,
        "queue": key.qid,
        "steps": steps,
        "fell_at": None if found.fell_at is None else found.steps.index(found.fell_at),
        "safe_offset": found.safe_offset,
        "command": reset_command(key.grp, key.ptopic, key.broker, key.qid, found.safe_offset),
        "unseen": list(found.unseen),
        "outside": list(found.outside),
    }


def _live(
    cluster: ClusterOptions, group: str, topic: str, queue: int, broker: str
) -> dict[str, Any]:
    from failback.analytics.live.queues import reset_command
    from failback.cli.measure.offset_now import Place, furthest, stand_of

    place = Place(group, topic, queue)

    async def question(admin: AdminClient) -> Standing:
        return await stand_of(admin, place, broker, options_of(cluster.given))

    found = ask(cluster.found(), question)
    # Without the ends of a queue its offsets are not known.
    is_told = not found.is_broadcasting and found.span is not None
    safe = found.safe_offset if is_told else None
    return {
        "source": "live",
        "group": group,
        "broker": found.broker,
        "topic": topic,
        "queue": queue,
        "steps": found.steps,
        "fell_at": furthest(found.steps),
        "safe_offset": safe,
        "bound": found.bound.value if is_told else None,
        "master_restarted_seconds": found.restarted_seconds,
        "exposure": {}
        if found.is_broadcasting
        else {"after_return": found.after_return, "on_slave": found.on_slave},
        "carry": None if found.is_broadcasting else found.carry,
        "command": reset_command(group, topic, found.broker, queue, safe),
        "unseen": found.unseen,
        "first_offset": found.span and found.span.first,
        "end_offset": found.span and found.span.end,
        "outside": [
            *found.outside,
            *([_BROADCASTS] if found.is_broadcasting else []),
            *([_NO_END] if found.span is None else []),
        ],
        "silent": found.silent,
        "near": found.near,
        "has_slave": any(each["place"] == SLAVE_TABLE for each in found.steps),
    }


def _has_offset(found: dict[str, Any]) -> bool:
    """Whether anybody holds one; a broker answers 0 for a group that it does not know, too."""
    return any(step["offset"] is not None and step["place"] != ANSWER for step in found["steps"])


def _show(found: dict[str, Any]) -> None:
    say(f"{found['group']} on {found['topic']}, {found['broker']}, queue {found['queue']}")
    zero = datetime.fromisoformat(found["zero"]).timestamp() if "zero" in found else time.time()
    rows = [
        (
            "now"
            if step["t"] is None
            else f"{of_day(zero + step['t'] / NS)} ({step['t'] / NS:.3f} s)",
            step["place"],
            step["offset"],
            f"-{step['fell']}" if step["fell"] else "",
            step["what"],
        )
        for step in found["steps"]
    ]
    print_table((f"TIME, {zone(zero)}", "WHERE", "OFFSET", "FELL", "WHAT"), rows)
    for line in found.get("outside") or ():
        say(f"{line[:1].upper()}{line[1:]}.")
    if found["fell_at"] is not None:
        step = found["steps"][found["fell_at"]]
        say(f"It went down at the {step['place']}, by {step['fell']}: {step['what']}.")
    elif _has_offset(found) and found.get("bound", "exact") == "exact":
        say("It never went down.")
    is_away = MASTER_TABLE in found["unseen"]
    least = "at least " if found.get("bound") == "at least" else ""
    for line in _exposure_lines(found.get("exposure") or {}, least, is_away=is_away):
        say(line)
    if found["unseen"]:
        say(f"Not seen: {', '.join(found['unseen'])}.")
    if carry := found.get("carry"):
        where = "on the master's host, before it starts" if is_away else "if no member runs"
        say(f"To give the master what its slaves know of all groups, {where}: {carry}")
    if found["command"]:
        say(f"Safe offset: {least}{found['safe_offset']}. To set it: {found['command']}")
        kept = "" if found["source"] == "live" else found["source"]
        if not is_away and (not kept or Path(kept, "carry").is_dir()):
            named = restore_command(
                kept, groups=[found["group"]], broker=found["broker"], yes=False
            )
            say(f"To see that for all its queues, and set them: {named}")


def _exposure_lines(exposure: dict[str, int | None], least: str, *, is_away: bool) -> list[str]:
    """What a consumer that is restarted would repeat, as far as tables and file show."""
    words = {
        "after_return": "after the master is back",
        "on_slave": "while the master is down",
    }
    known = {name: text for name, text in words.items() if exposure.get(name) is not None}
    fault = "" if is_away else "the master is killed now and "
    return [
        f"At risk if {fault}consumers restart {text}: {least}{exposure[name]} messages."
        for name, text in known.items()
    ]
