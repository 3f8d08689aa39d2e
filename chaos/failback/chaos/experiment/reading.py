"""Read an experiment's YAML into the models, or name the field that is wrong, with a near name."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar, get_args, get_origin

import pydantic
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, SequenceNode

from failback.chaos.experiment.model import API_VERSION, KIND, Model
from failback.common.bounded_yaml import compose, load_all
from failback.common.text import near_or_all, nearest, why
from failback.protocol.errors import ConfigError, ConfigErrors, raise_all

_M = TypeVar("_M", bound=Model)
UNITS: Final = ("Seconds", "Ms", "Bytes", "Messages", "PerSecond", "Ratio")


def load_yaml(text: str, file: Path | None = None) -> dict[str, Any]:
    """Return the one ChaosExperiment among the documents of a text. Raises ``ConfigError``."""
    try:
        documents = [each for each in load_all(text) if each]
    except YAMLError as error:
        raise _no_yaml(error) from error
    except ValueError as error:
        raise ConfigError(str(file or "experiment"), str(error)) from error
    chosen = [each for each in documents if isinstance(each, dict) and each.get("kind") == KIND]
    if len(chosen) != 1:
        found = [each.get("kind") for each in documents if isinstance(each, dict)]
        raise ConfigError(
            "kind", f"need exactly one {KIND} ({API_VERSION}), found {found or 'none'}"
        )
    document: dict[str, Any] = chosen[0]
    return document


def _explained(path: Sequence[int | str], others: Iterable[Sequence[int | str]]) -> bool:
    """Whether one of ``others`` lies below ``path``."""
    return any(len(o) > len(path) and tuple(o[: len(path)]) == tuple(path) for o in others)


def _no_yaml(error: YAMLError) -> ConfigError:
    mark = getattr(error, "problem_mark", None)
    found = ConfigError("YAML", str(getattr(error, "problem", "") or why(error)))
    if mark is not None:
        found.line, found.column = mark.line + 1, mark.column + 1
    return found


def put_places(error: ConfigError, text: str, file: Path) -> None:
    """Give the errors of an experiment's file its name, and line and column of their fields."""
    for each in (error, *getattr(error, "errors", ())):
        if each.field != str(file):  # what cannot be read at all is called by its name already
            each.file = file
    if error.line is not None:
        return
    places: dict[str, tuple[int, int]] = {}
    try:
        nodes = compose(text)
    except (YAMLError, ValueError):  # that is the error, and it has no field
        return
    for node in nodes:
        _note_places(node, "", places)
        if places.get("spec.workload") or places.get("spec.arms"):
            break  # the experiment itself; another object's fields are not asked for
        places.clear()
    for each in getattr(error, "errors", (error,)):
        field = each.field
        while field and field not in places:
            field = re.sub(r"(\.[^.\[]*|\[\d+\]|^[^.\[]+)$", "", field)
        if field:
            each.line, each.column = places[field]
    if isinstance(error, ConfigErrors):
        error.errors = tuple(sorted(error.errors, key=lambda each: (each.line or 0, each.column)))


def _note_places(node: Any, path: str, places: dict[str, tuple[int, int]]) -> None:
    if isinstance(node, MappingNode):
        for key, value in node.value:
            below = f"{path}.{key.value}" if path else str(key.value)
            places[below] = (key.start_mark.line + 1, key.start_mark.column + 1)
            _note_places(value, below, places)
    elif isinstance(node, SequenceNode):
        for index, value in enumerate(node.value):
            below = f"{path}[{index}]"
            places[below] = (value.start_mark.line + 1, value.start_mark.column + 1)
            _note_places(value, below, places)


def validate_fields(model: type[_M], data: Any, prefix: str) -> _M:
    """Make a model of plain data; ``prefix`` is the path of the data. Raises ``ConfigError``."""
    try:
        return model.model_validate(_tuples(data))
    except pydantic.ValidationError as error:
        told = error.errors(include_url=False)
        deeper = [tuple(each["loc"]) for each in told]
        # What is wrong inside a list also makes the list wrong: that is not told.
        found = [_describe(model, e, prefix) for e in told if not _explained(e["loc"], deeper)]
        raise_all([ConfigError(field, problem) for field, problem in found])
        raise


def _tuples(value: Any) -> Any:
    """Lists as tuples, at any depth: the models are immutable and strict."""
    if isinstance(value, dict):
        return {key: _tuples(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return tuple(_tuples(each) for each in value)
    return value


def _describe(model: type[Model], error: Any, prefix: str) -> tuple[str, str]:
    loc: Sequence[int | str] = error["loc"]
    field = prefix
    for part in loc:
        if isinstance(part, int):
            field += f"[{part}]"
        else:
            field += f".{part}" if field else part
    match error["type"]:
        case "extra_forbidden":
            owner = _model_at(model, loc[:-1])
            known = _aliases(owner) if owner is not None else []
            return field, unknown_name(str(loc[-1]), known)
        case "literal_error":
            expected = [each.strip(" '") for each in _expected(error)]
            return field, unknown_name(str(error["input"]), expected)
        case "parameter_word":
            context = error["ctx"]
            return f"{field}.{context['key']}", unknown_name(context["word"], context["known"])
        case "missing":
            return field, "is required"
        case kind:
            return field, _expected_value(str(kind), error)


def _expected_value(kind: str, error: Any) -> str:
    limits = error.get("ctx") or {}
    got = f", got {json.dumps(error.get('input'), default=str)}"
    expectation = {
        "int_type": "must be a whole number",
        "float_type": "must be a number",
        "bool_type": "must be true or false",
        "string_type": "must be a text",
        "tuple_type": "must be a list",
        "dict_type": "must be a mapping",
        "model_type": "must be a mapping",
        "greater_than": f"must be above {limits.get('gt', 0):g}",
        "greater_than_equal": f"must be at least {limits.get('ge', 0):g}",
        "less_than": f"must be below {limits.get('lt', 0):g}",
        "less_than_equal": f"must be at most {limits.get('le', 0):g}",
        "string_pattern_mismatch": f"must match {limits.get('pattern')}",
        "string_too_short": "must not be empty",
        "too_short": "must not be empty",
    }.get(kind)
    if expectation is not None:
        return f"{expectation}{got}"
    message = str(limits.get("error", error["msg"]))
    return f"{message[:1].lower()}{message[1:]}{got}"


def _expected(error: Any) -> list[str]:
    text = str(error.get("ctx", {}).get("expected", ""))
    return text.replace(" or ", ", ").split(",")


def _model_at(model: type[Model], loc: Iterable[int | str]) -> type[Model] | None:
    current: type[Model] | None = model
    for part in loc:
        if current is None or isinstance(part, int):
            continue
        current = next(
            (
                _inner_model(info.annotation)
                for info in current.model_fields.values()
                if info.alias == part
            ),
            None,
        )
    return current


def _inner_model(annotation: Any) -> type[Model] | None:
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return annotation if issubclass(annotation, Model) else None
    return next(
        (found for each in get_args(annotation) if (found := _inner_model(each)) is not None), None
    )


def _aliases(model: type[Model]) -> list[str]:
    return [info.alias or name for name, info in model.model_fields.items()]


def unknown_name(name: str, known: Sequence[str]) -> str:
    """Say that a name is unknown, and which one was meant, also where only a unit is missing."""
    near = next((each for each in known if _without_unit(each) == name.lower()), "")
    near = near or nearest(name, known, cutoff=0.5)
    return f'unknown "{name}"' + (near_or_all(near, known) if known else "")


def _without_unit(name: str) -> str:
    for unit in UNITS:
        if name.endswith(unit):
            return name.removesuffix(unit).lower()
    return name.lower()
