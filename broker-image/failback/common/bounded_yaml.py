"""Reads YAML that a stranger may have written: its size, depth and aliases are bounded."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.nodes import MappingNode, Node, SequenceNode

from failback.common.files import open_file

MOST_BYTES: Final = 8 * 1024**2
"""Of a file. An object of the API server ends at some 1.5 MiB."""
MOST_PARTS: Final = 100_000
"""Of a document, with its aliases written out."""


def read_text(path: Path) -> str:
    """Return the text of a file.

    Raises:
        OSError: It cannot be read, or it is no regular file.
        ValueError: It is no UTF-8, or too large.
    """
    with open_file(path) as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ValueError(f"has more than {MOST_BYTES >> 20} MiB")
    return data.decode()


def compose(text: str) -> list[Node]:
    """Return the root node of each document; a part that an alias names is the same node again.

    Raises:
        YAMLError: It is no YAML.
        ValueError: It is too large, nested too deep, or its aliases stand for too many parts.
    """
    if len(text) > MOST_BYTES:
        raise ValueError(f"has more than {MOST_BYTES >> 20} MiB")
    try:
        nodes = list(YAML(typ="safe", pure=True).compose_all(text))
        if max((_parts(node, {}) for node in nodes), default=0) > MOST_PARTS:
            raise ValueError(
                f"has more than {MOST_PARTS} parts in one document, its aliases written out"
            )
    except RecursionError as error:
        raise ValueError("is nested too deep") from error
    return nodes


def load_all(text: str, *, version: tuple[int, int] | None = None) -> list[Any]:
    """Return the plain value of each document. Raises as :func:`compose`.

    Args:
        version: Of YAML, by which scalars are read: (1, 1) as Java's readers do; 1.2 unless given.
    """
    compose(text)
    reader = YAML(typ="safe", pure=True)
    reader.version = version
    return list(reader.load_all(text))


def written(document: Any, *, version: tuple[int, int] | None = None) -> str:
    """Return a document as YAML, a line for each entry; ``version`` as in :func:`load_all`."""
    writer, text = YAML(typ="safe", pure=True), io.StringIO()
    writer.version = version
    writer.default_flow_style = False
    writer.dump(document, text)
    return text.getvalue()


def _parts(node: Node, known: dict[int, int]) -> int:
    """Return how many parts a node stands for. An alias inside of its own part has no end."""
    if id(node) not in known:
        known[id(node)] = MOST_PARTS + 1  # until it is counted: what names itself is too much
        below = 0
        if isinstance(node, MappingNode):
            below = sum(_parts(key, known) + _parts(value, known) for key, value in node.value)
        elif isinstance(node, SequenceNode):
            below = sum(_parts(each, known) for each in node.value)
        known[id(node)] = 1 + below
    return known[id(node)]
