"""Custom resources: decoding one document, and loading files of them.

``decode`` turns a mapping into a model or raises :class:`Invalid`, which names the field;
``load_resources`` (from :mod:`failback.operator.schema.loading`) adds the file and the line.
"""

from __future__ import annotations

import json
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from failback.common.text import did_you_mean, nearest
from failback.operator.kinds.base import (
    API_VERSION,
    Engine,
    Metadata,
    Model,
    Resource,
    parse_quantity,
)
from failback.operator.kinds.broker_cluster import BrokerCluster, Pair
from failback.operator.kinds.chaos_experiment import ChaosExperiment
from failback.operator.kinds.name_server import NameServer
from failback.operator.kinds.offset_snapshot import OffsetSnapshot
from failback.operator.kinds.reconsumption_report import ReconsumptionReport
from failback.operator.kinds.role_switch import RoleSwitch
from failback.operator.kinds.subscription_group import SubscriptionGroup
from failback.operator.kinds.topic import Topic
from failback.operator.schema.rules import violations

__all__ = [
    "API_VERSION",
    "KINDS",
    "BrokerCluster",
    "ChaosExperiment",
    "Engine",
    "Invalid",
    "Metadata",
    "Model",
    "NameServer",
    "OffsetSnapshot",
    "Pair",
    "ReconsumptionReport",
    "Resource",
    "RoleSwitch",
    "SubscriptionGroup",
    "Topic",
    "decode",
    "parse_quantity",
]

KINDS: Final[dict[str, type[Resource]]] = {
    "NameServer": NameServer,
    "BrokerCluster": BrokerCluster,
    "Topic": Topic,
    "SubscriptionGroup": SubscriptionGroup,
    "RoleSwitch": RoleSwitch,
    "OffsetSnapshot": OffsetSnapshot,
    "ChaosExperiment": ChaosExperiment,
    "ReconsumptionReport": ReconsumptionReport,
}


class Invalid(ValueError):
    """A document is not a valid object: the path of a field, and its problem.

    ``problems`` has every path with its problem, that one first.
    """

    def __init__(
        self,
        path: tuple[str | int, ...],
        problem: str,
        others: Sequence[tuple[tuple[str | int, ...], str]] = (),
    ) -> None:
        super().__init__(f"{path_text(path)}: {problem}")
        self.path = path
        self.problem = problem
        self.problems = ((path, problem), *others)


def decode(document: Mapping[str, Any]) -> Resource:
    """Return the model of one object of our kinds.

    Raises:
        Invalid: Everything that is wrong with it.
    """
    kind = document.get("kind")
    model = KINDS.get(str(kind))
    if model is None:
        raise Invalid(("kind",), f'unknown kind "{kind}"{did_you_mean(str(kind), KINDS)}')
    try:
        resource = model.model_validate(dict(document))
    except ValidationError as error:
        raise _invalid(model, error.errors(include_url=False)) from None
    broken = violations(resource)
    if broken:
        (path, problem), *others = [
            (path_parts(each.field or each.path), each.detail or each.message) for each in broken
        ]
        raise Invalid(path, problem, others)
    return resource


def path_text(path: Iterable[str | int]) -> str:
    """Return a path as people write it: ``spec.pairOverrides[1].config``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")


def path_parts(text: str) -> tuple[str | int, ...]:
    """Return the parts of a path: the inverse of :func:`path_text` for our field names."""
    parts: list[str | int] = []
    for word in text.split("."):
        name, _, index = word.partition("[")
        parts.append(name)
        if index:
            parts.append(int(index.rstrip("]")))
    return tuple(parts)


def _invalid(model: type[BaseModel], errors: Sequence[ErrorDetails]) -> Invalid:
    # An unknown field explains a missing one (spec.nameServerref), so it is told first.
    ordered = sorted(errors, key=lambda error: error["type"] != "extra_forbidden")
    found: dict[tuple[str | int, ...], str] = {}
    for error in ordered:
        location = tuple(part for part in error["loc"] if part != "[key]")
        found.setdefault(location, _problem(model, location, error))
    (path, problem), *others = found.items()
    return Invalid(path, problem, others)


def _problem(model: type[BaseModel], location: tuple[int | str, ...], error: ErrorDetails) -> str:
    kind, limits, got = error["type"], error.get("ctx", {}), json.dumps(error["input"], default=str)
    if kind == "extra_forbidden":
        parent = _model_at(model, location[:-1])
        known = [field.alias or name for name, field in parent.model_fields.items()]
        near = nearest(str(location[-1]), known)
        return f'unknown field, did you mean "{near}"?' if near else "unknown field"
    if kind == "missing":
        return "is required"
    if kind == "value_error":
        return str(limits["error"])
    if kind == "string_type":
        return f"must be a string, got {got}" + (
            "; put it in quotes" if isinstance(error["input"], (int, float, bool)) else ""
        )
    expectation = {
        "int_type": "must be an integer",
        "bool_type": "must be true or false",
        "list_type": "must be a list",
        "dict_type": "must be a mapping",
        "model_type": "must be a mapping",
        "literal_error": f"must be {str(limits.get('expected')).replace(chr(39), chr(34))}",
        "greater_than_equal": f"must be at least {limits.get('ge')}",
        "less_than_equal": f"must be at most {limits.get('le')}",
        "string_pattern_mismatch": f"must match {limits.get('pattern')}",
        "string_too_short": "must not be empty",
    }.get(kind)
    if expectation is not None:
        return f"{expectation}, got {got}"
    return error["msg"][0].lower() + error["msg"][1:]


def _model_at(model: type[BaseModel], path: tuple[int | str, ...]) -> type[BaseModel]:
    for part in path:
        if isinstance(part, int):
            continue
        for name, field in model.model_fields.items():
            if part in (name, field.alias):
                model = _model_of(field.annotation) or model
    return model


def _model_of(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in typing.get_args(annotation):
        if found := _model_of(argument):
            return found
    return None
