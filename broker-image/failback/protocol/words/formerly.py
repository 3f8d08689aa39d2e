"""Words of resources that an earlier release spelled otherwise: read for one version, and told.

``Annotated[Literal["Preferred", "None"], Formerly("preferred", "none")]`` reads both spellings and
holds the new one. pydantic calls the two methods with double underscores; nothing of it is needed
here, so that programs without it can have this package.
"""

from __future__ import annotations

import typing
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

GONE_IN: Final = "0.3"
"""The release that reads the new spelling only."""


class Mark(ABC):
    """Stands in the annotation of a field whose values were once written otherwise."""

    @abstractmethod
    def former(self, annotation: Any, value: Any) -> str:
        """Return how a value is written now; empty where it is written so."""


class Formerly(Mark):
    """The earlier spellings of some words of an enumeration.

    A word and its earlier spelling have the same letters, whatever their case, hyphens aside.
    """

    def __init__(self, *words: str) -> None:
        self.words = words

    def renamed(self, enumeration: Any) -> dict[str, str]:
        """Return earlier spelling → word, of a ``Literal``.

        Raises:
            KeyError: A word of this has no counterpart there.
        """
        known = {_letters(word): word for word in typing.get_args(enumeration)}
        return {word: known[_letters(word)] for word in self.words}

    def former(self, annotation: Any, value: Any) -> str:
        return self.renamed(annotation).get(value, "") if isinstance(value, str) else ""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return _before(self.renamed(source), handler(source))

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Any:
        found = handler(schema)
        words = found.pop("enum", None) or [found.pop("const")]
        return {**found, "enum": [*words, *self.words]}


class Written(Formerly):
    """How a resource writes the words of an enumeration that a program goes on calling as before.

    ``Annotated[Literal["master"], Written("Master")]`` reads both, and holds ``master``.
    """

    def renamed(self, enumeration: Any) -> dict[str, str]:
        known = {_letters(word): word for word in self.words}
        return {
            word: known[_letters(word)]
            for word in typing.get_args(enumeration)
            if _letters(word) in known
        }

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        renamed = self.renamed(source)
        expected = [renamed.get(word, word) for word in typing.get_args(source)]
        read = _before(renamed, {"type": "literal", "expected": expected})
        inside = {now: word for word, now in renamed.items()}
        function = {"type": "no-info", "function": lambda word: inside.get(word, word)}
        return {"type": "function-after", "function": function, "schema": read}


class PairName(Mark):
    """A pair, which the broker name names: 0.1 also took its number, and ``pair-`` with that."""

    def former(self, annotation: Any, value: Any) -> str:
        number = str(value).removeprefix("pair-")
        return "" if number == value else f"PREFIX-{number}, the broker name"


def written(word: str) -> str:
    """Return a word of our programs as a resource writes it; what is no such word stays."""
    if not word.islower():
        return word
    return "".join(part.capitalize() for part in word.split("-"))


def former_of(enumeration: Iterable[Any]) -> dict[Any, Any]:
    """Return earlier spelling → word, of an enumeration that has both."""
    words = list(enumeration)
    present = {_letters(word): word for word in present_words(words)}
    return {word: present[_letters(word)] for word in words if word != present[_letters(word)]}


def present_words(enumeration: Iterable[Any]) -> list[Any]:
    """Return the words of an enumeration without their earlier spellings, which come behind."""
    found: dict[str, Any] = {}
    for word in enumeration:
        found.setdefault(_letters(word), word)
    return list(found.values())


@dataclass(frozen=True, slots=True)
class Former:
    """A value in an earlier spelling, where it stands in a document."""

    path: str
    value: object
    now: str

    def __str__(self) -> str:
        return f"{self.path}: {self.value} is spelled {self.now}, and not read from {GONE_IN} on"


def former_words(model: Any, document: Any, path: str = "") -> Iterator[Former]:
    """Yield the values of a document that are in an earlier spelling.

    Args:
        model: The pydantic model that reads the document.
        document: The object as it was written; what the model would refuse is passed over.
    """
    if not isinstance(document, Mapping):
        return
    for name, field in model.model_fields.items():
        key = field.alias or name
        if key in document:
            at = f"{path}.{key}" if path else key
            for each in field.metadata:
                yield from _former(each, field.annotation, document[key], at)
            yield from _below(field.annotation, document[key], at)


def _below(annotation: Any, value: Any, path: str) -> Iterator[Former]:
    if hasattr(annotation, "model_fields"):
        yield from former_words(annotation, value, path)
        return
    if isinstance(value, list):
        for number, item in enumerate(value):
            for inner in typing.get_args(annotation):
                yield from _below(inner, item, f"{path}[{number}]")
        return
    for each in getattr(annotation, "__metadata__", ()):
        yield from _former(each, annotation.__origin__, value, path)
    for inner in typing.get_args(annotation):
        yield from _below(inner, value, path)


def _former(mark: Any, annotation: Any, value: Any, path: str) -> Iterator[Former]:
    if isinstance(mark, Mark) and (now := mark.former(annotation, value)):
        yield Former(path, value, now)


def _before(renamed: Mapping[str, str], schema: Any) -> dict[str, Any]:
    """Return pydantic's schema that renames words before another schema reads them."""

    def now(value: Any) -> Any:
        return renamed.get(value, value) if isinstance(value, str) else value

    function = {"type": "no-info", "function": now}
    return {"type": "function-before", "function": function, "schema": schema}


def _letters(word: Any) -> str:
    return str(word).replace("-", "").lower()
