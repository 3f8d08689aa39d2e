"""Properties texts of all editors are read as java.util.Properties reads them, or refused by line.

What Java says of the same bytes is compared in ``tests/java/test_foreign_conf.py``.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failback.protocol.calls import write_properties
from failback.protocol.errors import ConfigError
from failback.protocol.properties import properties_of
from tests.support.brokers.foreign_properties import REFUSED, TEXTS

pytestmark = pytest.mark.foreign


@pytest.mark.parametrize("data", TEXTS)
def test_a_text_is_read_as_java_reads_it(data: bytes) -> None:
    assert properties_of(data).values == TEXTS[data]


@pytest.mark.parametrize("data", REFUSED)
def test_a_text_that_is_none_is_refused_by_line(data: bytes) -> None:
    with pytest.raises(ConfigError) as caught:
        properties_of(data, Path("a.conf"))
    assert str(caught.value).startswith(f"a.conf:{REFUSED[data]}: ")


def test_lines_are_those_of_an_editor() -> None:
    found = properties_of(b"# x\r\na=1\\\r\n  2\r\n\r\nb=3\rc=4\n")
    assert found.lines == {"a": 2, "b": 5, "c": 6}


def test_letters_beyond_ascii_are_told_with_their_line() -> None:
    assert properties_of("# é\na=é\n".encode()).remarks == [
        "line 2: a has letters beyond ASCII, read as UTF-8, and by Java as ISO-8859-1:"
        " write them as \\u escapes"
    ]
    assert "as ISO-8859-1, as by Java" in properties_of(b"a=\xe9").remarks[0]
    assert properties_of(b"# \xe9\na=\\u00e9\n").remarks == []


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(ConfigError):
        found = properties_of(data)
        assert found.values.keys() == found.lines.keys()


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=20), max_size=5))
def test_what_is_written_is_read_again(settings: dict[str, str]) -> None:
    surrogates = any(
        "\ud800" <= each <= "\udfff" for pair in settings.items() for text in pair for each in text
    )
    if not surrogates:
        assert properties_of(write_properties(settings)).values == settings
