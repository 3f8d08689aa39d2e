"""The options of a command that are the fields of its settings."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, fields, is_dataclass
from typing import Annotated, Any, Generic, TypeVar, get_origin, get_type_hints

from failback.cli.shared.options import option
from failback.common.options import METADATA, Option

_Command = TypeVar("_Command", bound=Callable[..., Any])
_Settings = TypeVar("_Settings")
_SEVERAL = (frozenset, tuple, Mapping)
"""Fields of these types are options that may be repeated."""


@dataclass(frozen=True, slots=True)
class Typed(Generic[_Settings]):
    """What was typed for the settings of a command."""

    kind: type[_Settings]
    values: Mapping[str, Any]
    """Field → the value of its option."""

    def make(self, **further: Any) -> _Settings:
        """Return the settings, with those fields besides that are no options.

        Raises:
            ConfigError: A value is refused.
        """
        made: _Settings = _settings_of(self.kind, self.values, **further)
        return made


def settings_options(kind: type[Any]) -> Callable[[_Command], _Command]:
    """Give a command the options of its parameter ``settings``, which is :class:`Typed`."""

    def declare(command: _Command) -> _Command:
        options = list(_parameters(kind))
        return with_options(command, "settings", options, functools.partial(Typed, kind))

    return declare


def with_options(
    command: _Command,
    parameter: str,
    options: Sequence[inspect.Parameter],
    value_of: Callable[[Mapping[str, Any]], Any],
) -> _Command:
    """Return a command that has ``options`` in place of one parameter.

    Args:
        value_of: Makes the parameter of what was typed, by the names of the options.
    """
    signature = inspect.signature(command, eval_str=True)
    parameters: list[inspect.Parameter] = []
    for each in signature.parameters.values():
        named = each.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        parameters += options if each.name == parameter else [named]

    @functools.wraps(command)
    def run(**values: Any) -> Any:
        typed = {each.name: values.pop(each.name) for each in options}
        return command(**values, **{parameter: value_of(typed)})

    made: Any = run
    del made.__wrapped__
    made.__signature__ = signature.replace(parameters=parameters)
    made.__annotations__ = {each.name: each.annotation for each in parameters}
    return made  # type: ignore[no-any-return]


def keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    """Return a parameter that is an option."""
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def _parameters(settings: type[Any], outer: Any = None) -> Iterator[inspect.Parameter]:
    """Yield an option for each field that has one, also for those of settings within settings.

    Args:
        outer: The default of settings within others; its values are those of the options.
    """
    kinds = get_type_hints(settings)
    for each in fields(settings):
        default = each.default if outer is None else getattr(outer, each.name)
        how: Option | None = each.metadata.get(METADATA)
        if how is not None:
            yield _parameter(each, how, kinds[each.name], default)
        elif is_dataclass(default):
            yield from _parameters(type(default), default)


def _parameter(each: Field[Any], how: Option, kind: Any, default: Any) -> inspect.Parameter:
    names = f"--{how.name or each.name.replace('_', '-')}"
    if kind is bool:
        names = f"{names}/--no-{names[2:]}"
    if get_origin(kind) in _SEVERAL:
        kind, default = list[str] | None, None
    elif how.unit != 1 and default is not None:
        default = default // how.unit
    # Settings check their own values.
    further = {"callback": None, "min": how.least, "max": how.most}
    declared = option(names, how.value, how.text, **further)
    return keyword(each.name, Annotated[kind, declared], default)


def _settings_of(settings: type[Any], typed: Mapping[str, Any], **further: Any) -> Any:
    """Make settings of what was typed and of the fields that are no options."""
    values = {}
    for each in fields(settings):
        how: Option | None = each.metadata.get(METADATA)
        if how is not None:
            values[each.name] = _value(how, typed[each.name], each.default)
        elif is_dataclass(each.default):
            values[each.name] = _settings_of(type(each.default), typed)
    return settings(**{**values, **further})


def _value(how: Option, typed: Any, default: Any) -> Any:
    if how.read is not None:
        return how.read(typed)
    if isinstance(default, (frozenset, tuple)):
        return type(default)(typed or ())
    return typed if typed is None or how.unit == 1 else typed * how.unit
