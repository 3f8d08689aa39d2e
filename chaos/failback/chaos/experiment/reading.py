"""Read an experiment's YAML into the models, or name the field that is wrong, with a near name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar, get_args, get_origin

import pydantic
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from failback.chaos.experiment.model import API_VERSION, KIND, Model
from failback.protocol.errors import ConfigError
from failback.protocol.words.spelling import near_or_all, nearest

_M = TypeVar("_M", bound=Model)
UNITS: Final = ("Seconds", "Ms", "Bytes", "Messages", "PerSecond", "Ratio")


def load_yaml(text: str, file: Path | None) -> dict[str, Any]:
    """Return the one ChaosExperiment among the documents of a text. Raises ``ConfigError``."""
    try:
        documents = [each for each in YAML(typ="safe", pure=True).load_all(text) if each]
    except YAMLError as error:
        raise ConfigError("file", f"no valid YAML: {_one_line(str(error))}", file=file) from error
    chosen = [each for each in documents if isinstance(each, dict) and each.get("kind") == KIND]
    if len(chosen) != 1:
        found = [each.get("kind") for each in documents if isinstance(each, dict)]
        raise ConfigError(
            "kind", f"need exactly one {KIND} ({API_VERSION}), found {found or 'none'}", file=file
        )
    document: dict[str, Any] = chosen[0]
    return document


def validate_fields(model: type[_M], data: Any, prefix: str, file: Path | None) -> _M:
    """Make a model of plain data; ``prefix`` is the path of the data. Raises ``ConfigError``."""
    try:
        return model.model_validate(_tuples(data))
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        field, problem = _describe(model, first, prefix)
        raise ConfigError(field, problem, file=file) from error


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
        case "missing":
            return field, "is required"
        case _:
            message = str(error["msg"])
            shown = error.get("input")
            return field, f"{message[0].lower()}{message[1:]} (got {shown!r})"


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
    near = nearest(name, known, cutoff=0.5)
    near = near or next((each for each in known if _without_unit(each) == name.lower()), "")
    return f'unknown "{name}"' + (near_or_all(near, known) if known else "")


def _without_unit(name: str) -> str:
    for unit in UNITS:
        if name.endswith(unit):
            return name.removesuffix(unit).lower()
    return name.lower()


def _one_line(text: str) -> str:
    return " ".join(text.split())
