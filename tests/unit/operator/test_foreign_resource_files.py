"""A resource file costs at most a multiple of its size, whatever is in it."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest

from failback.operator.schema.loading import load_resources, read_documents
from failback.protocol.errors import ConfigError
from tests.support.common.shapes import spoilt

pytestmark = pytest.mark.foreign

LAUGHS = "a0: &a0 [x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30)
)
FILES = {
    "aliases of aliases": (LAUGHS, "has more than 100000 parts in one document"),
    "deep lists": ("a: " + "[" * 20_000, "nested too deep"),
    "deep mappings": ("{a: " * 20_000, "nested too deep"),
    "too much": ("a: " + "x" * (9 << 20), "has more than 8 MiB"),
    "a byte that is no UTF-8": ("a: \udcff", "cannot be read|can't|decode|UTF-8"),
    "a tab": ("a:\n\t- b\n", "found character"),
}
EXAMPLE = Path(__file__).parents[3] / "examples" / "cluster.yaml"


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_can_be_no_resource_is_refused_by_name(tmp_path: Path, name: str) -> None:
    text, message = FILES[name]
    file = tmp_path / "resources.yaml"
    file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ConfigError, match=message) as caught:
        read_documents(file)
    assert str(file) in str(caught.value)


def test_a_spoilt_example_is_read_or_refused(tmp_path: Path) -> None:
    chance, file = random.Random(32), tmp_path / "resources.yaml"
    sample = EXAMPLE.read_bytes()[:3000]
    for _ in range(30):
        file.write_bytes(spoilt(chance, sample))
        with contextlib.suppress(ConfigError):
            load_resources([file])
