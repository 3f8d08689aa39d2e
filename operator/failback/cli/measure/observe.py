"""``failback observe``: watch a cluster that Failback does not run, over a master's return."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from failback.cli.shared.closed_terminal import outlive_terminal
from failback.cli.shared.clusters import NO_CLUSTER, ClusterOptions, cluster_options
from failback.cli.shared.commands import command
from failback.cli.shared.errors import INCONCLUSIVE, fail
from failback.cli.shared.folders import check_folder, dated_folder, run_id
from failback.cli.shared.options import RUNS, JsonOption, TraceTopicOption, flag, option
from failback.cli.shared.output import console, note, print_json, say
from failback.cli.shared.verdicts import row_of, say_answers
from failback.client.remoting.guarded.cluster import options_of
from failback.common.text import typed, where_and_why
from failback.common.times import of_day, zone
from failback.protocol.errors import ConfigError

if TYPE_CHECKING:
    from rich.table import Table

    from failback.analytics.observe.events import Event
    from failback.analytics.observe.looks import Look
    from failback.analytics.observe.observation import Observation


_QUEUES = 16
_LINES = 10
"""Groups in danger that are shown at once."""


@command(
    "observe",
    "failback observe -n 10.0.0.1:9876                             until Ctrl-C",
    "failback observe -n 10.0.0.1:9876 --out upgrade-7 --for 30m   goes on with it",
)
@cluster_options()
def observe(
    out: Annotated[
        Path | None,
        option(
            "--out",
            "FOLDER",
            "Run folder to write; one begun before is continued. %F in it is today (UTC)."
            " (default: runs/observe-DATE-TIME).",
        ),
    ] = None,
    cluster: ClusterOptions = NO_CLUSTER,
    group: Annotated[
        list[str] | None, option("--group", "GROUP", "Only this consumer group (default: all).")
    ] = None,
    topic: Annotated[
        list[str] | None, option("--topic", "TOPIC", "Only this topic (default: all).")
    ] = None,
    every: Annotated[str, option("--every", "TIME", "Time between two looks, such as 1s.")] = "1s",
    for_: Annotated[
        str, option("--for", "TIME", "How long, such as 30m (default: until Ctrl-C).")
    ] = "",
    trace: Annotated[
        bool, flag("--trace", "Read the clients' message trace too: exact counts.")
    ] = False,
    trace_topic: TraceTopicOption = None,
    max_duplicates: Annotated[
        str,
        option(
            "--max-duplicates",
            "N|P%",
            "What each group may re-consume at a return; more fails the report.",
        ),
    ] = "",
    max_rto: Annotated[
        str,
        option(
            "--max-rto",
            "TIME",
            "How long a master may be away, or a canary stand still; longer fails the report.",
        ),
    ] = "",
    ask_clients: Annotated[
        bool,
        flag(
            "--ask-clients",
            "Have brokers ask members what they hold, every 5 s: intervals get narrower.",
        ),
    ] = False,
    canary: Annotated[
        bool,
        flag(
            "--canary",
            "Make a topic and two groups of our own on each pair, and count what they consume"
            " again; they are removed at the end.",
        ),
    ] = False,
    keep_canary: Annotated[
        bool, flag("--keep-canary", "The same, and leave them for the next time.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Watch a cluster, read-only: what did each group re-consume when a master came back?

    It goes on when its terminal closes; SIGTERM ends it with a report.
    """
    from failback.analytics.observe.folder import Wanted
    from failback.analytics.observe.observing import observe as run
    from failback.analytics.trace.records import TRACE_TOPIC

    period = _duration("--every", every)
    asked = cluster.found()
    if out is None:
        out = dated_folder(RUNS, "observe").relative_to(Path.cwd())
    else:
        out = Path(str(out).replace("%F", time.strftime("%F", time.gmtime())))
        check_folder("--out", out)
    wanted = Wanted(
        run=run_id("--out", out.resolve().name),
        name_servers=asked.name_servers,
        access=asked.access,
        cluster_options=tuple(options_of(cluster.given)),
        every=period,
        groups=tuple(group or ()),
        topics=tuple(topic or ()),
        limits=_limits(max_duplicates, max_rto),
        trace=tuple(trace_topic or ([TRACE_TOPIC] if trace else [])),
        asks_clients=ask_clients,
        canary=canary or keep_canary,
        keep_canary=keep_canary,
    )
    seconds = _duration("--for", for_) if for_ else None
    outlive_terminal()
    logging.getLogger("failback.client").setLevel(logging.ERROR)  # a canary's log has the rest
    with ExitStack() as stack:
        listener = _quiet if json else _shown(stack)
        beside = note if json else say
        asyncio.run(_until_stopped(partial(run, note=beside), out, wanted, listener, seconds))
    raise typer.Exit(_reported(out, json=json))


def _reported(out: Path, *, json: bool) -> int:
    """Make the report of the run and print its answers; return the exit code."""
    # Arrow and what a report needs take 40 MiB, which an observer that runs for days spares.
    from failback.analytics.report.make_report import read_report, report

    try:
        made = report(out)
    except OSError as error:
        fail(
            f"{where_and_why(error)}: no report was made; what was seen is kept: make room, then"
            f" {typed('failback', 'report', out)}"
        )
        return INCONCLUSIVE
    row = {**row_of(made.json), "report": str(made.json)}
    if json:
        print_json({**row, "observation": read_report(made.json)["observation"]})
    else:
        say_answers(row)
        say(f"report: {made.html or made.summary}")
    return made.exit_code


def _limits(max_duplicates: str, max_rto: str) -> dict[str, str]:
    found = {}
    if max_duplicates:
        try:
            value = float(max_duplicates.removesuffix("%"))
        except ValueError:
            value = -1.0
        if not 0 <= value < 1e18:
            problem = (
                f'must be a number of messages or a share such as 0.5%, got "{max_duplicates}"'
            )
            raise ConfigError("--max-duplicates", problem)
        found["max_duplicates"] = max_duplicates
    if max_rto:
        found["max_rto"] = str(_duration("--max-rto", max_rto))
    return found


def _duration(option: str, text: str) -> float:
    from failback.analytics.errors import ReportInputError
    from failback.analytics.run.definitions import duration_ns

    try:
        found = duration_ns(text) / 1e9
    except ReportInputError as error:
        raise ConfigError(option, f'must be a time such as 1s or 30m, got "{text}"') from error
    if not 0.2 <= found <= 31 * 86_400:
        raise ConfigError(option, f"must be between 0.2s and 31 days, got {text}")
    return found


async def _until_stopped(run: Callable[..., Any], *args: Any) -> None:
    """Observe until Ctrl-C, SIGTERM or the end of the time."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    *rest, seconds = args
    await run(*rest, stop, seconds=seconds)


def _quiet(_: Look, __: list[Event], ___: Observation) -> None:
    """Print no progress."""


def _shown(stack: ExitStack) -> Callable[[Look, list[Event], Observation], None]:
    """Return a listener: a live view on a terminal, a line for each event elsewhere."""
    if not console.is_terminal:
        return _print_events
    from rich.live import Live

    live = stack.enter_context(Live(console=console, auto_refresh=False))

    def show(look: Look, events: list[Event], observation: Observation) -> None:
        for event in events:
            live.console.print(_line(event, observation), markup=False)
        live.update(_view(look, observation), refresh=True)

    return show


def _print_events(look: Look, events: list[Event], observation: Observation) -> None:
    if observation.is_first:
        brokers = ", ".join(sorted(each.place.text for each in look.brokers)) or "no broker"
        begun = observation.zero + look.began
        since = f"{of_day(begun)} {zone(begun)}"
        say(f"observing {brokers} since {since}; Ctrl-C ends it")
    for event in events:
        say(_line(event, observation))
        for line in _danger(observation) if event.kind == "MasterBack" else ():
            say(line)


def _line(event: Event, observation: Observation) -> str:
    broker = f"{event.broker} " if event.broker else ""
    at = f"{of_day(observation.zero + event.until)} ({event.until:,.1f} s)"
    return f"{at}  {event.kind:17} {broker}{event.detail}"


def _danger(observation: Observation) -> list[str]:
    """Return lines about groups in danger, with the offsets to set and how.

    First those for which a person must act; of a group with members they store the offsets.
    """
    from failback.analytics.live.queues import members_in_words
    from failback.analytics.observe.observation import dangers

    found = dangers(observation)
    lines = []
    for each in found[:_LINES]:
        safe = list(each.safe.items())
        offsets = " ".join(f"{queue}:{offset}" for queue, offset in safe[:_QUEUES])
        more = f" and {len(safe) - _QUEUES} more" if len(safe) > _QUEUES else ""
        least = "at least " if each.tells_nobody else ""
        lines.append(
            f"  {'ACT ' if each.must_act else 'wait'}  {each.group} on {each.topic} of"
            f" {each.broker}: {members_in_words(each.members)}; {least}{each.behind:,} behind;"
            f" safe offsets {offsets}{more}"
            + (f"\n        {each.command}" if each.must_act else "")
        )
    return lines + ([f"  and {len(found) - _LINES} more groups"] if len(found) > _LINES else [])


def _view(look: Look, observation: Observation) -> Table:
    from rich.table import Table
    from rich.text import Text

    from failback.common.text import visible

    now = observation.zero + look.ended
    title = f"{of_day(now)} {zone(now)}, {look.ended:,.0f} s observed"
    table = Table(title=title, caption="Ctrl-C ends it", expand=False)
    for header in ("BROKER", "ROLE", "ADDRESS", "STATE", "UP SINCE"):
        table.add_column(header, overflow="fold")
    for each in sorted(look.brokers, key=lambda each: each.place):
        began = each.boot_ms or observation.finder.boot_of(each.place)
        since = "-" if not began else time.strftime("%F %T", time.localtime(began / 1000))
        role = "master" if each.broker_id == 0 else f"slave {each.broker_id}"
        cells = (each.place.broker, role, each.addr, each.state, since)
        table.add_row(*(Text(visible(cell)) for cell in cells))
    for line in _danger(observation):
        table.add_section()
        table.add_row(Text(visible(line.strip()), style="bold"))
    return table
