"""A resource or an experiment file costs at most a multiple of its size, whatever is in it."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from failback.chaos.faults.catalogue import load_experiment
from failback.operator.schema.loading import load_resources, read_documents
from failback.protocol.errors import ConfigError
from tests.support.common.shapes import spoilt

pytestmark = pytest.mark.foreign

LAUGHS = "a0: &a0 [x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30)
)
MERGES = "a0: &a0 {k: v}\n" + "".join(
    f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 30)
)
FILES = {
    "aliases of aliases": (LAUGHS, "has more than 100000 parts in one document"),
    "deep lists": ("a: " + "[" * 20_000, "nested too deep"),
    "deep mappings": ("{a: " * 20_000, "nested too deep"),
    "too much": ("a: " + "x" * (9 << 20), "has more than 8 MiB"),
    "a byte that is no UTF-8": ("a: \udcff", "cannot be read|can't|decode|UTF-8"),
    "merges of merges": (MERGES, "has more than 100000 parts in one document"),
    "an alias of itself": ("a: &a [*a]\n", "has more than 100000 parts in one document"),
    "a tab": ("a:\n\t- b\n", "found character"),
}
EXAMPLE = Path(__file__).parents[3] / "examples" / "cluster.yaml"


@pytest.mark.parametrize("read", [read_documents, load_experiment], ids=lambda read: read.__name__)
@pytest.mark.parametrize("name", FILES)
def test_a_file_that_can_be_no_resource_is_refused_by_name(
    tmp_path: Path, name: str, read: Callable[[Path], object]
) -> None:
    text, message = FILES[name]
    file = tmp_path / "resources.yaml"
    file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ConfigError, match=message) as caught:
        read(file)
    assert str(file) in str(caught.value)


def test_a_spoilt_example_is_read_or_refused(tmp_path: Path) -> None:
    chance, file = random.Random(32), tmp_path / "resources.yaml"
    sample = EXAMPLE.read_bytes()[:3000]
    for _ in range(30):
        file.write_bytes(spoilt(chance, sample))
        with contextlib.suppress(ConfigError):
            load_resources([file])


def replaced(node: Any, value: Any) -> Iterator[Any]:
    """Each copy of a document that has another value in one place."""
    yield value
    if not isinstance(node, (dict, list)):
        return
    for key, below in list(node.items() if isinstance(node, dict) else enumerate(node)):
        for each in replaced(below, value):
            copy = node.copy()
            copy[key] = each
            yield copy


@pytest.mark.parametrize("is_list", [False, True])
def test_a_value_of_another_type_is_refused_wherever_it_stands(
    tmp_path: Path, is_list: bool
) -> None:
    file, tried = tmp_path / "resources.yaml", 0
    example: Any = list(YAML(typ="safe").load_all(EXAMPLE.read_text()))
    if is_list:
        example = [{"apiVersion": "v1", "kind": "List", "items": example}]
    values: tuple[Any, ...] = (None, 5, "x", [], {"a": "b"}, [[]])
    for value in values:
        for made in replaced(example, value):
            documents = made if isinstance(made, list) else [made]
            file.write_text("\n---\n".join(json.dumps(each) for each in documents))
            tried += 1
            with contextlib.suppress(ConfigError):
                load_resources([file])
    assert tried > 100
