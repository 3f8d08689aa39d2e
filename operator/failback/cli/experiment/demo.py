"""``failback demo``: the main job. Bundled cluster and experiment, all arms, one report."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from json import loads
from pathlib import Path
from secrets import token_hex
from textwrap import indent
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from failback.cli.experiment.arms import ArmRun
from failback.cli.experiment.on_spark import OnSpark, count_on_spark, fetch, why_not_spark
from failback.cli.experiment.side_by_side import running
from failback.cli.shared.bundled import bundled
from failback.cli.shared.commands import command
from failback.cli.shared.errors import FAIL, INCONCLUSIVE, Debug, explain, fail, worst
from failback.cli.shared.folders import dated_folder
from failback.cli.shared.options import RUNS, JsonOption, RunsOption, flag, option
from failback.cli.shared.output import Board, note, print_json, say
from failback.cli.shared.verdicts import print_verdicts, row_of, say_answers
from failback.common.text import typed
from failback.protocol.errors import ConfigError

if TYPE_CHECKING:
    from failback.analytics.report.make_report import ReportPaths
    from failback.chaos.experiment.spec import ChaosExperiment
    from failback.operator.kinds.base import Resource

QUICK_TIME_SCALE: Final = 0.1
RULES: Final = ("compat", "guarded")
_ACL: Final = "demo-acl"
CARRIED: Final = "carried"
"""The arm that is arm handover once more, with carry before the master's start."""
LONG_OUTAGE_SECONDS: Final = 70
"""How long a master of 5.x is held: its consumers turn to the slave some 15 s later than 4.9's."""
LASTS: Final = {
    "failback": "about two and a half minutes to the table",
    "apache": "about three minutes to the table",
}


@command(
    "demo",
    "failback demo --quick                all timers at a tenth, without Spark",
    "failback demo --rules guarded        with the counter-measures on",
    "failback demo --engine apache --version 5.3.3",
    "failback demo --engine apache --carry    and the cure as a third arm",
)
def demo(
    quick: Annotated[bool, flag("--quick", "All timers at a tenth: under half a minute.")] = False,
    engine: Annotated[
        str, option("--engine", "", "Whose brokers: failback or apache.")
    ] = "failback",
    version: Annotated[
        str, option("--version", "", "Of Apache's brokers, such as 5.3.3 (default: 4.9.7).")
    ] = "",
    rules: Annotated[
        str, option("--rules", "", "Brokers' rules: compat (4.9.8's) or guarded.")
    ] = "compat",
    carry: Annotated[
        bool, flag("--carry", "A third arm: handover, with carry before the start.")
    ] = False,
    secured: Annotated[
        bool, flag("--secured", "With access control, and TLS alone: the figures are the same.")
    ] = False,
    spark: Annotated[
        bool | None,
        flag(
            "--spark/--no-spark",
            "Count once more with Spark and compare (default: not with --quick).",
        ),
    ] = None,
    runs: RunsOption = RUNS,
    keep: Annotated[bool, flag("--keep", "Keep the brokers' stores.")] = False,
    json: JsonOption = False,
    fetch_spark: Annotated[str, typer.Option("--fetch-spark", hidden=True)] = "",
) -> None:
    """Kill a master under load, with and without a consumer handover; count what comes twice."""
    from failback.operator.schema.rule_texts import ACL_2_VERSION

    experiment = load_demo(quick=quick, engine=engine, version=version, rules=rules, carry=carry)
    if secured and re.match(ACL_2_VERSION, version):
        raise ConfigError("--secured", f"Apache {version} has ACL 2.0 alone: name one below 5.3")
    if spark and not fetch_spark and (missing := why_not_spark()):
        raise ConfigError("--spark", missing)
    if engine == "apache":
        version = fetched(version)
    folder = dated_folder(runs, "demo")
    folder.mkdir()
    board = Board([arm.name for arm in experiment.arms], silent=json)
    if not json:
        _introduce(experiment, folder, quick=quick, engine=engine)
    arms = [
        ArmRun(
            experiment,
            arm.name,
            demo_resources(
                arm.name,
                quick=quick,
                engine=engine,
                version=version,
                rules=rules,
                secured=secured,
            ),
            secrets=demo_secrets(engine) if secured else {},
            root=folder / "roots" / arm.name,
            run_dir=folder / arm.name,
            board=board,
        )
        for arm in experiment.arms
    ]
    with _tidied(folder, keep=keep), ExitStack() as clusters:
        with board.shown():
            clusters.enter_context(running(arms, _stopping))
            for arm in arms:
                board.tell(arm.arm, "making the report")
            done = _report(arms, folder)
        rows, code = _rows(arms, done)
        if not json:
            _show(arms, rows)  # while the clusters stop
    on_spark = _on_spark(done, fetch_spark, silent=json) if _wants_spark(spark, quick) else None
    if on_spark is not None and on_spark.differences:
        code = worst([code, FAIL])
    if json:
        counted = {"spark": on_spark.plain()} if on_spark is not None else {}
        print_json({"arms": rows, **counted, "exit_code": code})
    else:
        _say_next(rows, runs)
    raise typer.Exit(code)


def fetched(version: str) -> str:
    """Have Apache's brokers of a version (empty: the default) in the cache; return the version.

    Raises:
        ConfigError: The version can't be had, or there is no Java for it.
    """
    from failback.operator.local.apache_release import DEFAULT_VERSION, FIELD, find_apache

    try:
        find_apache(version or DEFAULT_VERSION, note)
    except ConfigError as error:
        if error.field != FIELD:
            raise
        raise ConfigError("--version", error.problem) from error
    return version or DEFAULT_VERSION


def load_demo(
    *, quick: bool, engine: str, version: str = "", rules: str, carry: bool = False
) -> ChaosExperiment:
    """Return the bundled experiment; refuse options that do not fit together.

    Raises:
        ConfigError: Names the option.
    """
    from failback.chaos.faults.catalogue import parse_experiment
    from failback.operator.engines.quirks import quirk
    from failback.operator.local.apache_release import DEFAULT_VERSION

    if engine not in ("failback", "apache"):
        raise ConfigError("--engine", f'must be failback or apache, got "{engine}"')
    if quick and engine == "apache":
        problem = "needs engine failback: the timers of Apache RocketMQ can't be scaled"
        raise ConfigError("--quick", problem)
    if rules not in RULES:
        raise ConfigError("--rules", f'must be {" or ".join(RULES)}, got "{rules}"')
    if rules != "compat" and engine == "apache":
        problem = "needs engine failback: Apache RocketMQ has no other rules than its own"
        raise ConfigError("--rules", problem)
    if version and engine == "failback":
        raise ConfigError("--version", "needs --engine apache: there is one Failback here")
    if carry and engine == "failback":
        problem = "needs --engine apache: brokers of Failback have it built in, as --rules guarded"
        raise ConfigError("--carry", problem)
    text = bundled("experiment.yaml").read_text(encoding="utf-8")
    family = quirk("storeFamily", engine, version or DEFAULT_VERSION)
    down_seconds = 50 if family == "v4" else LONG_OUTAGE_SECONDS
    experiment = parse_experiment(_for_engine(text, carry=carry, down_seconds=down_seconds))
    return experiment.with_time_scale(QUICK_TIME_SCALE) if quick else experiment


def _for_engine(text: str, *, carry: bool, down_seconds: int) -> str:
    """Return the text of the experiment with its outage, and with arm carried where asked for."""
    import yaml

    data = yaml.safe_load(text)
    data["spec"]["faults"][0]["with"]["downSeconds"] = down_seconds
    arms = data["spec"]["arms"]
    if carry:
        (handover,) = (arm for arm in arms if arm["name"] == "handover")
        arms.append({**handover, "name": CARRIED})
    return str(yaml.safe_dump(data, sort_keys=False))


def demo_resources(
    arm: str, *, quick: bool, engine: str, version: str = "", rules: str, secured: bool = False
) -> list[Resource]:
    """Return the bundled cluster in a namespace of the arm, with the options put in."""
    from failback.operator.local.apache_release import DEFAULT_VERSION
    from failback.operator.schema.decoding import decode
    from failback.operator.schema.loading import read_documents

    items = []
    for document in read_documents(bundled("cluster.yaml")):
        data: dict[str, Any] = document.data
        data["metadata"]["namespace"] = f"demo-{arm}"
        if quick:
            config = data["spec"].setdefault("config", {})
            config["failbackTimeScale"] = str(QUICK_TIME_SCALE)
        if engine == "apache":
            data["spec"]["engine"] = {"type": "Apache", "version": version or DEFAULT_VERSION}
            if data["kind"] == "BrokerCluster":  # what the other arms show is the bare engine
                data["spec"]["offsetCarry"] = {"mode": "Auto" if arm == CARRIED else "Off"}
        elif rules != "compat":
            data["spec"]["engine"] = {"type": "Failback", "rules": rules}
        if secured:
            data["spec"]["tls"] = {"secretRef": {"name": "demo-tls"}, "mode": "Enforcing"}
            if data["kind"] == "BrokerCluster":
                data["spec"]["acl"] = {"secretRef": {"name": _ACL}}
        items.append(decode(data))
    return items


def demo_secrets(engine: str) -> dict[str, dict[str, str]]:
    """Return the Secret of a secured demo: one account, which all that is of the demo has.

    Slaves of Apache sign nothing. So their address is white, here that of the whole machine.
    """
    key = f"accessKey: failback-demo\nsecretKey: {token_hex()}\n"
    account = indent(f"{key}admin: true\n", "  ").replace("  ", "- ", 1)
    white = f"globalWhiteRemoteAddresses: [{'127.0.0.1' if engine == 'apache' else ''}]\n"
    return {_ACL: {"plain_acl.yml": f"{white}accounts:\n{account}", "tools.yml": key}}


def _introduce(experiment: ChaosExperiment, folder: Path, *, quick: bool, engine: str) -> None:
    lasts = "about 25 seconds, all timers at a tenth" if quick else LASTS[engine]
    names = ", ".join(arm.name for arm in experiment.arms)
    say(f"kill -9 of a master under load; arms {names} side by side; {lasts}; runs in {folder}")


def _stopping() -> None:
    say("stopping: undoing the faults, then ending the clusters; this takes some seconds")


@contextmanager
def _tidied(folder: Path, *, keep: bool) -> Iterator[None]:
    """Remove the brokers' stores at the end, also of a demo that was stopped; else say where."""
    roots = folder / "roots"
    try:
        yield
    except KeyboardInterrupt:
        _remove(roots, keep=keep)
        say(f"stopped; what the runs logged is in {folder}")
        raise
    except typer.Exit:  # the runs are over, and it was said what failed behind them
        _remove(roots, keep=keep)
        raise
    except Exception:
        say(f"the brokers' stores and logs are in {roots}")
        raise
    _remove(roots, keep=keep)


def _remove(roots: Path, *, keep: bool) -> None:
    if not keep:
        shutil.rmtree(roots, ignore_errors=True)


def _report(arms: Sequence[ArmRun], folder: Path) -> list[ReportPaths]:
    from failback.analytics.report.make_report import report_many

    try:
        return report_many([arm.run_dir for arm in arms], "local")
    except Exception as error:
        # The runs stand whatever the report says: what they took is not to be spent again.
        if Debug.on:
            raise
        line, code = explain(error)
        fail(f"report: {line}; the runs are complete, try: {typed('failback', 'report', folder)}")
        raise typer.Exit(code) from error


def _rows(arms: Sequence[ArmRun], done: Sequence[ReportPaths]) -> tuple[list[dict[str, Any]], int]:
    """The figures of each arm, and the exit code of the worst."""
    rows = [
        {**row_of(each.json), "report": str(each.json), "html": str(each.html or "")}
        for each in done
    ]
    codes = [each.exit_code for each in done]
    codes += [arm.outcome.exit_code if arm.outcome is not None else INCONCLUSIVE for arm in arms]
    return rows, worst(codes)


def _show(arms: Sequence[ArmRun], rows: Sequence[dict[str, Any]]) -> None:
    print_verdicts(rows)
    for row in rows:
        say_answers(row)
    for arm in arms:
        if arm.outcome is not None and arm.outcome.message:
            fail(f"{arm.arm}: {arm.outcome.message}")


def _wants_spark(spark: bool | None, quick: bool) -> bool:
    return not quick if spark is None else spark


def _on_spark(done: Sequence[ReportPaths], fetching: str, *, silent: bool) -> OnSpark | None:
    """Return what Spark finds; print a note and return ``None`` where it is not installed."""
    if why_not_spark() and fetching:
        fetch(fetching)
    if missing := why_not_spark():
        note(f"Spark: not compared: {missing}")
        return None
    try:
        found = count_on_spark(done, silent=silent)
    except Exception as error:
        # The table stands whatever becomes of Spark, but a comparison that failed is none.
        found = OnSpark(0.0, (explain(error)[0],))
    if not silent:
        found.tell()
    return found


def _say_next(rows: Sequence[dict[str, Any]], runs: Path) -> None:
    worst_row = max(rows, key=lambda row: row["duplicates"])
    report = Path(worst_row["report"])
    say("next:")
    for row in rows:
        page = row["html"] or row["report"]
        say(f"  {'open' if sys.platform == 'darwin' else 'xdg-open'} {page}")
    say("  " + typed("failback", "dashboard", "--runs", runs))
    if place := _worst_queue(report):
        say("  " + typed("failback", "explain-offset", *place, "--run", report.parent.parent))


def _worst_queue(report: Path) -> tuple[str, ...]:
    """Return group, topic and queue with the most duplicates, for ``explain-offset``."""
    queues = loads(report.read_bytes()).get("queues") or []
    if not queues:
        return ()
    queue = max(queues, key=lambda each: each["dup"])
    return str(queue["group"]), str(queue["topic"]), str(queue["qid"])
