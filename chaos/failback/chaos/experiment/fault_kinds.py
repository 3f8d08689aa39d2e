"""What a fault kind is: its name, the parameters that ``with`` may hold, and what it promises.

The kinds themselves are beside their injection, one module each in :mod:`failback.chaos.faults`.
They are arguments here: so this folder stays pure, and a further fault changes nothing in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import Parameter as SignatureParameter
from inspect import Signature
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

from failback.chaos.experiment.model import Fault, written

MODES: Final = ("one", "all", "fixed", "fixed-percent", "random-max-percent")
"""How many of those that match are hit."""
MILESTONES: Final = ("gone", "slave-serving", "accept", "registered", "slave-synced")
"""Instants of another fault that ``after`` may wait for, in the order in which they come."""

ParameterKind = Literal[
    "seconds",
    "offset",
    "milliseconds",
    "ratio",
    "count",
    "choice",
    "milestone",
    "flag",
    "version",
]
_TYPES: Final = {"flag": bool, "count": int, "choice": str, "milestone": str, "version": str}
_PLACE: Final = SignatureParameter.POSITIONAL_OR_KEYWORD
TargetKind = Literal["broker", "group", "both", "nameservers", "none"]
_EMPTY: Final = SignatureParameter.empty
_ARGUMENTS: Final[Mapping[TargetKind, Mapping[str, object]]] = {
    "broker": {"pair": _EMPTY, "at_seconds": _EMPTY, "role": "master"},
    "group": {"group": _EMPTY, "at_seconds": _EMPTY, "mode": "all", "value": 0.0},
    "both": {"pair": _EMPTY, "at_seconds": _EMPTY, "role": "master", "group": ""},
    "nameservers": {"at_seconds": _EMPTY},
    "none": {"at_seconds": 0.0},
}
"""Arguments of actions beside parameters, with their defaults."""
Values: TypeAlias = Mapping[str, Any]
"""Parameters by name: those of the file, and the defaults of those that it leaves out."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One key of ``with``. ``argument`` is the keyword of the action that takes it.

    A parameter whose ``always`` is set is written into the generated experiment even when the file
    leaves it out, so that a journal can be read without this table.
    """

    name: str
    kind: ParameterKind
    argument: str
    default: object = None
    choices: tuple[str, ...] = ()
    always: bool = False

    @property
    def written_choices(self) -> list[str]:
        """The choices as a file writes them."""
        return [written(word) for word in self.choices]

    @property
    def written_default(self) -> object:
        """The default as a file writes it."""
        return written(str(self.default)) if self.choices else self.default


AFTER: Final = Parameter("after", "milestone", "after", default="")
DOWN: Final = Parameter("downSeconds", "seconds", "down_seconds")


@dataclass(frozen=True, slots=True)
class FaultKind:
    """One row of the catalogue.

    ``lasts`` names the parameter that holds the length of the effect, for the overlap check.
    ``milestones`` are those that a later fault can wait for, ``modes`` those of its target: a
    broker fault hits one broker. ``fixed`` arguments are written into every generated action.
    """

    code: str
    name: str
    action: str
    target: TargetKind
    title: str
    parameters: tuple[Parameter, ...] = ()
    lasts: str | None = None
    milestones: tuple[str, ...] = ()
    modes: tuple[str, ...] = ("one",)
    supported_by: frozenset[str] = frozenset({"local", "kubernetes"})
    engines: frozenset[str] = frozenset({"failback", "apache"})
    proves: str = ""
    """What is seen of its effect and of its heal, and by what."""
    needs: str = ""
    """What a local cluster has to be started with."""
    why_not_others: str = ""
    """Why the other engine is refused."""
    fixed: Mapping[str, str] = field(default_factory=dict)
    check: Callable[[Values], tuple[str, str] | None] | None = None
    """Parameters that are fine one by one and not together: the name of one, and the problem."""
    parts: Callable[[Fault, Values], tuple[Fault, ...]] | None = None
    """The faults that this one is made of. It has no action then.

    The first part keeps the id that the file gives: a fault that waits for this one waits for it.
    """

    @property
    def written_modes(self) -> list[str]:
        """The modes as a file writes them."""
        return [written(word) for word in self.modes]

    def parameter(self, name: str) -> Parameter | None:
        return next((each for each in self.parameters if each.name == name), None)

    def values(self, given: Values) -> Values:
        """What is given, with the defaults of what is not."""
        return MappingProxyType({each.name: each.default for each in self.parameters} | {**given})

    def signature(self) -> Signature:
        """The arguments of the action: the session, the target, and the parameters."""
        defaults = {"session": _EMPTY, **_ARGUMENTS[self.target], "fid": "", **self.fixed}
        shown = [
            SignatureParameter(name, _PLACE, default=default) for name, default in defaults.items()
        ]
        shown += [
            SignatureParameter(
                each.argument, _PLACE, default=each.default, annotation=_TYPES.get(each.kind, float)
            )
            for each in self.parameters
        ]
        return Signature(shown, return_annotation=dict[str, Any])

    def taken_apart(self, fault: Fault) -> tuple[Fault, ...]:
        """The faults that this one is made of, itself if it is made of none."""
        return self.parts(fault, self.values(fault.with_)) if self.parts else (fault,)


FaultKinds: TypeAlias = Mapping[str, FaultKind]
"""Fault kinds by the name that ``faults[].fault`` uses."""


def parse_milestone(text: str) -> tuple[str, str]:
    """Split ``"accept:f1"`` into milestone and fault id.

    Raises:
        ValueError: The form is wrong or the milestone unknown; the message says which.
    """
    milestone, colon, fid = text.partition(":")
    if not colon or not fid:
        raise ValueError(f'must be MILESTONE:FAULT-ID, for example "accept:f1", not "{text}"')
    if milestone not in MILESTONES:
        raise ValueError(f'unknown milestone "{milestone}", one of {", ".join(MILESTONES)}')
    return milestone, fid
