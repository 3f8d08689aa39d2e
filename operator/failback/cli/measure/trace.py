"""``failback trace``: from the message trace of any RocketMQ client to a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from failback.cli.shared.asking import meant_time
from failback.cli.shared.clusters import NO_CLUSTER, ClusterOptions, cluster_options
from failback.cli.shared.commands import command
from failback.cli.shared.errors import INCONCLUSIVE
from failback.cli.shared.folders import check_folder, run_id
from failback.cli.shared.options import JsonOption, TraceTopicOption, flag, option
from failback.cli.shared.output import console, print_json, say
from failback.common.text import typed
from failback.protocol.errors import ConfigError

if TYPE_CHECKING:
    from failback.analytics.trace.reading import Span
    from failback.analytics.trace.run import Written


@command(
    "trace",
    "failback trace --out t1 -n 10.0.0.1:9876             all that the trace topic has",
    "failback trace --out t1 --since 2026-01-31T12:00:00  from then on",
    "failback report t1                                   then count",
)
@cluster_options()
def trace(
    out: Annotated[
        Path, option("--out", "FOLDER", "Run folder to write; one begun before is continued.")
    ],
    cluster: ClusterOptions = NO_CLUSTER,
    trace_topic: TraceTopicOption = None,
    topic: Annotated[
        list[str] | None,
        option(
            "--topic", "TOPIC", "Traced topic to find positions in (default: all in the trace)."
        ),
    ] = None,
    group: Annotated[
        list[str] | None, option("--group", "GROUP", "Only this consumer group.")
    ] = None,
    broadcasting: Annotated[
        list[str] | None,
        option("--broadcasting", "GROUP", "A group whose members all get everything."),
    ] = None,
    since: Annotated[
        str, option("--since", "TIME", "Traces stored from this ISO time on (default: all).")
    ] = "",
    until: Annotated[
        str, option("--until", "TIME", "Traces stored up to this ISO time (default: now).")
    ] = "",
    scan: Annotated[bool, flag("--scan/--no-scan", "Read the traced topics for positions.")] = True,
    run: Annotated[str, option("--run", "ID", "Id of the run (default: the folder's name).")] = "",
    yes: Annotated[bool, flag("--yes", "Take times that can hardly be meant as they are.")] = False,
    json: JsonOption = False,
) -> None:
    """Read the message trace of unmodified clients into a run that `failback report` takes."""
    import asyncio

    from failback.analytics.trace.ingest import Request, ingest
    from failback.analytics.trace.records import TRACE_TOPIC

    check_folder("--out", out)
    asked = cluster.found()
    request = Request(
        namesrv=asked.name_servers,
        access=asked.access,
        run_dir=out,
        run=run_id("--run", run or out.resolve().name),
        trace_topics=tuple(trace_topic or (TRACE_TOPIC,)),
        topics=tuple(topic or ()),
        groups=tuple(group or ()),
        broadcasting=tuple(broadcasting or ()),
        span=_span(since, until, yes=yes),
        scan=scan,
    )
    if console.is_terminal and not json:
        with console.status("reading") as status:
            read: dict[str, int] = {}

            def progress(name: str, count: int) -> None:
                read[name] = read.get(name, 0) + count
                status.update(f"reading {name}: {read[name]:,} messages")

            written = asyncio.run(ingest(request, progress))
    else:
        written = asyncio.run(ingest(request))
    _show(written, as_json=json)
    if written.gaps or not written.deliveries:
        raise typer.Exit(INCONCLUSIVE)


def _span(since: str, until: str, *, yes: bool) -> Span:
    from failback.analytics.trace.reading import Span

    begin, end = _time("--since", since, yes=yes), _time("--until", until, yes=yes)
    if begin is not None and end is not None and end < begin:
        raise ConfigError("--until", f"{until} is before --since, {since}")
    return Span(begin, end)


def _time(option: str, text: str, *, yes: bool) -> int | None:
    if not text:
        return None
    found = meant_time(text, option, yes=yes)
    if text == "now":
        raise ConfigError(option, 'must be a time, got "now"')
    return found


def _show(written: Written, *, as_json: bool) -> None:
    from dataclasses import asdict

    if as_json:
        print_json({**asdict(written), "run_dir": str(written.run_dir)})
        return
    c = written.counts
    say(
        f"{written.records:,} trace records ({c.repeated:,} stored more than once, "
        f"{written.damaged:,} not readable): {written.deliveries:,} deliveries to "
        f"{', '.join(written.groups) or 'no group'}, {written.sends:,} sends"
    )
    say(
        f"{c.missing_end:,} deliveries without an end, {c.unplaced:,} without a position, "
        f"{c.several_copies:,} of messages stored several times"
    )
    for gap in written.gaps:
        say(f"missing: {gap}")
    if written.deliveries:
        say(f"next: {typed('failback', 'report', written.run_dir)}")
    elif not written.records:
        say(
            "Switch message trace on: traceTopicEnable=true in broker.conf, then"
            " enableMsgTrace in the clients; what was consumed before is not traced."
        )
