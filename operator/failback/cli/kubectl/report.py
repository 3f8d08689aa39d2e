"""``kubectl failback report``: a ReconsumptionReport's answer, and its page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from failback.cli.kubectl.access import HERE, Where, command
from failback.cli.kubectl.artifacts import pages
from failback.cli.kubectl.conditions import condition_of, waits
from failback.cli.shared.errors import FAIL, INCONCLUSIVE, PASS
from failback.cli.shared.options import JsonOption, argument, flag, option
from failback.cli.shared.output import note, print_json, print_table, say
from failback.common.numbers import count, seconds

Object = Mapping[str, Any]
_CODES = {"Pass": PASS, "Fail": FAIL}


@command(
    "report",
    "kubectl failback report failback-demo",
    "kubectl failback report failback-demo --out pages --open",
)
def report(
    name: Annotated[str, argument("NAME", "Name of the ReconsumptionReport.")],
    out: Annotated[
        Path | None, option("--out", "FOLDER", "Fetch the report's pages into this folder.")
    ] = None,
    open_page: Annotated[
        bool, flag("--open", "Fetch the pages and open the first in a browser.")
    ] = False,
    where: Where = HERE,
    json: JsonOption = False,
) -> None:
    """Print what a ReconsumptionReport found; ends as `failback report` does.

    Its pages are on a volume: a pod of the report's own image reads them there, and is deleted.
    """
    with where.access() as api:
        item = api.need("ReconsumptionReport", name)
        state = item.get("status") or {}
        if json:
            print_json(state)
        else:
            _show(name, state)
        if out is not None or open_page:
            folder = out if out is not None else Path(f"{name}-report")
            files = pages(api, item, folder)
            for file in files:
                note(f"page: {file}")
            if open_page:
                typer.launch(str(files[0]))
    raise typer.Exit(_CODES.get(str(state.get("verdict")), INCONCLUSIVE))


def _show(name: str, state: Object) -> None:
    if state.get("phase") != "Done":
        _show_unfinished(name, state)
        return
    say(f"{name}: {state.get('verdict')}, {state.get('outcome') or 'no limit set'}")
    share = f" ({state['duplicateRatio']} per message)" if state.get("duplicateRatio") else ""
    rto = state.get("rtoSeconds") or {}
    rows = [
        ("produced", count(state.get("produced"))),
        ("delivered", count(state.get("delivered"))),
        ("distinct", count(state.get("distinct"))),
        ("duplicates", f"{count(state.get('duplicates'))}{share}"),
        ("lost", count(state.get("lost"))),
        ("out of order", count(state.get("outOfOrder"))),
        ("producers waited", seconds(rto.get("produce"))),
        ("consumers waited", seconds(rto.get("consume"))),
    ]
    print_table(("FIGURE", "VALUE"), rows)
    causes = sorted((state.get("byCause") or {}).items(), key=lambda each: -each[1])
    if causes:
        print_table(("CAUSE", "DUPLICATES"), [(cause, count(number)) for cause, number in causes])
    for reason in state.get("reasons") or ():
        say(f"Because: {reason}")
    if state.get("artifactUri"):
        say(f"Pages: {state['artifactUri']} (--out FOLDER fetches them)")


def _show_unfinished(name: str, state: Object) -> None:
    complete = condition_of(state, "Complete")
    words = [str(state.get("phase") or "not looked at yet"), str(complete.get("reason") or "")]
    text = ", ".join(filter(None, words))
    message = f": {complete['message']}" if complete.get("message") else ""
    say(f"{name}: {text}{message}")
    blocked = [waits(each) for each in state.get("blockedBy") or ()]
    if blocked:
        say(f"Waits for: {', '.join(blocked)}")
