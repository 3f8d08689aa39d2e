"""``failback runs``: the recorded runs of a folder, and one of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from failback.cli.shared.commands import command, new_group
from failback.cli.shared.options import RUNS, JsonOption, RunsOption, argument
from failback.cli.shared.output import print_json, print_table, say
from failback.common import numbers
from failback.protocol.errors import ConfigError

if TYPE_CHECKING:
    from failback.analytics.dashboard.sources.runs import RunEntry


@command("list", "failback runs list", "failback runs list --runs /data/runs --json")
def list_(runs: RunsOption = RUNS, json: JsonOption = False) -> None:
    """List the runs of a folder, the newest first: state, figures, and the two answers."""
    found = _scan(runs)
    if json:
        print_json([each.document() for each in found])
        return
    if not found:
        say(f"no run in {runs}; make one with: failback demo --quick")
        return
    print_table(
        ("RUN", "STARTED", "EXPERIMENT", "ARM", "STATE", "RE-CONSUMED", "SHARE", "EVIDENCE"),
        [
            (
                each.folder,
                _started(each),
                each.experiment,
                f"{each.arm}-{each.repetition}" if each.arm else "",
                each.state,
                each.dup_span or numbers.count(each.dup),
                numbers.percent(each.dup_ratio),
                each.evidence,
            )
            for each in found
        ],
    )


@command("show", "failback runs show runs/demo-1/handover", "failback runs show RUN_ID")
def show(
    run: Annotated[str, argument("RUN", "Run folder, its path below --runs, or its id.")],
    runs: RunsOption = RUNS,
    json: JsonOption = False,
) -> None:
    """Show one run: what happened, the answers of its report, and what to do next."""
    each = _chosen(run, runs)
    if json:
        print_json(each.document())
        return
    arm = f", arm {each.arm}, repetition {each.repetition}" if each.arm else ""
    say(f"{each.path}: {each.experiment or each.source or each.run}{arm}")
    say(f"started {_started(each)}, engine {each.engine or '-'}, rules {each.rules or '-'}")
    say(f"state: {each.state}")
    if each.verdict is not None:
        say(each.sentence)
        _show_answers(each)
    elif each.sentence:
        say(each.sentence)
    say(f"next: {each.next_step}")


def _show_answers(each: RunEntry) -> None:
    from failback.cli.shared.verdicts import print_verdicts, row_of, say_reasons

    row = row_of(each.path / "report" / "report.json")
    print_verdicts([row])
    say(f"{row['evidence']}. {row['outcome_words']}.")
    say_reasons(row)
    page = each.path / "report" / "report.html"
    if page.exists():
        say(f"report: {page}")


def _scan(runs: Path) -> list[RunEntry]:
    from failback.analytics.dashboard.sources.runs import RunIndex

    if not runs.is_dir():
        problem = "is a file, not a folder" if runs.exists() else "no such folder"
        raise ConfigError("--runs", f"{runs}: {problem}")
    return RunIndex(runs).scan()


def _chosen(run: str, runs: Path) -> RunEntry:
    from failback.common.text import did_you_mean

    path = Path(run)
    if (path / "run.json").is_file():
        found = [each for each in _scan(path.absolute().parent) if each.folder == path.name]
        if not found:
            raise ConfigError("RUN", f"{path}/run.json is not readable")
        return found[0]
    entries = _scan(runs)
    for each in entries:
        if run in (each.folder, each.run):
            return each
    names = [name for each in entries for name in (each.folder, each.run)]
    near = did_you_mean(run, names) or "; see: failback runs list"
    raise ConfigError("RUN", f'there is no run "{run}" in {runs}{near}')


def _started(each: RunEntry) -> str:
    from failback.analytics.dashboard.sources.runs import rfc3339

    return rfc3339(each.started_ns)


app = new_group(
    "List recorded runs, and show one.",
    *(list_, show),
    examples=("failback runs list", "failback runs show runs/demo-1/handover"),
)
