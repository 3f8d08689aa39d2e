"""``failback faults``: what an experiment can do to a cluster, and the parameters of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from failback.cli.shared.commands import command
from failback.cli.shared.options import JsonOption, argument
from failback.cli.shared.output import print_json, print_table, say
from failback.common.text import typed
from failback.protocol.errors import ConfigError

if TYPE_CHECKING:
    from failback.chaos.experiment.fault_kinds import FaultKind, Parameter


@command("faults", "failback faults", "failback faults long-outage       one, with its parameters")
def faults(
    name: Annotated[str, argument("FAULT", "Show one fault with all its parameters.")] = "",
    json: JsonOption = False,
) -> None:
    """List the faults that an experiment can inject, with their parameters."""
    from failback.chaos.faults.catalogue import KINDS
    from failback.common.text import did_you_mean

    if name and name not in KINDS:
        near = did_you_mean(name, KINDS) or "; see: failback faults"
        raise ConfigError("FAULT", f'there is no fault "{name}"{near}')
    kinds = [KINDS[name]] if name else list(KINDS.values())
    if json:
        print_json([_document(each) for each in kinds])
    elif name:
        _show(kinds[0])
    else:
        _show_all(kinds)


def _show_all(kinds: Sequence[FaultKind]) -> None:
    rows = [
        (
            each.name,
            each.code,
            each.target,
            ", ".join(parameter.name for parameter in each.parameters),
            f"{each.title}.",
        )
        for each in kinds
    ]
    print_table(("FAULT", "CODE", "HITS", "PARAMETERS", "WHAT IT DOES"), rows)


def _show(kind: FaultKind) -> None:
    say(f"{kind.name} ({kind.code}), hits: {kind.target}")
    say(f"{kind.title}.")
    say(f"Proof: {kind.proves}.")
    if kind.needs:
        say(f"Needs: {kind.needs}.")
    if kind.why_not_others or kind.supported_by == {"local"}:
        where = ", ".join(sorted(kind.supported_by))
        say(f"Runs: {where}; engines {', '.join(sorted(kind.engines))}.")
    if kind.parameters:
        say("")
        rows = [
            (each.name, _values(each), _shown(each.written_default)) for each in kind.parameters
        ]
        print_table(("PARAMETER", "VALUE", "DEFAULT"), rows)
    if kind.milestones:
        say("")
        names = ", ".join(kind.milestones)
        say(f"A later fault can wait for (with.after: MILESTONE:ID): {names}")
    say(f"Try it: {typed('failback', 'experiment', 'run', kind.name)}")


def _shown(default: object) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    return f"{default:g}" if isinstance(default, (int, float)) else str(default or "")


def _values(parameter: Parameter) -> str:
    if parameter.choices:
        return "|".join(parameter.written_choices)
    return "MILESTONE:ID" if parameter.kind == "milestone" else parameter.kind


def _document(kind: FaultKind) -> dict[str, Any]:
    return {
        "name": kind.name,
        "code": kind.code,
        "target": kind.target,
        "what": kind.title,
        "proves": kind.proves,
        "needs": kind.needs,
        "parameters": [
            {
                "name": each.name,
                "kind": each.kind,
                "default": each.written_default,
                "choices": each.written_choices,
            }
            for each in kind.parameters
        ],
        "milestones": list(kind.milestones),
        "modes": kind.written_modes,
        "targets": sorted(kind.supported_by),
        "engines": sorted(kind.engines),
    }
