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

pytestmark = pytest.mark.foreign

TEXTS: dict[bytes, dict[str, str]] = {
    b"": {},
    b"a=b": {"a": "b"},
    b"\xef\xbb\xbfa=b\n": {"a": "b"},
    b"\xef\xbb\xbf# \xbc\xaf\na=b\n": {"a": "b"},
    b"# \xbc\xaf\xc8\xba\na=b\n": {"a": "b"},
    b"a=\xe9\n": {"a": "é"},
    "a=é\n".encode(): {"a": "é"},
    b"a=b\r\nc=d\r\n": {"a": "b", "c": "d"},
    b"a=b\rc=d\r": {"a": "b", "c": "d"},
    b"a=b\\\n   c\n": {"a": "bc"},
    b"a=b\\\r\n\t c\r\n": {"a": "bc"},
    b"a=b\\": {"a": "b"},
    b"a=b\\\\\nc=d\n": {"a": "b\\", "c": "d"},
    b"a : b\nc d\ne\n": {"a": "b", "c": "d", "e": ""},
    b"a = = b\n": {"a": "= b"},
    b"a\\ b=c\na\\=b=c\n": {"a b": "c", "a=b": "c"},
    b"=v\n": {"": "v"},
    b"a=b \n": {"a": "b "},
    b"a=\\ b\n": {"a": " b"},
    b"a=b # no comment\n": {"a": "b # no comment"},
    b"  ! a=b\n#c=d\\\ne=f\n": {"e": "f"},
    b"a=b\\\n# c\n": {"a": "b# c"},
    b"a=\\u4e2d\\t\\q\n": {"a": "中\tq"},
    b"a=\\ud83d\\ude00\n": {"a": "😀"},
    b"a=1\na=2\n": {"a": "2"},
    b"a=\x85b\x0b\x1cc\n": {"a": "\x85b\x0b\x1cc"},
    b"# a\\u12\na=b\n": {"a": "b"},
    b"\x0c\t a\x0c=\x0cb\n": {"a": "b"},
}
REFUSED: dict[bytes, int] = {
    b"a=b\nc=\\u12\n": 2,
    b"a=b\r\rc=\\uzzzz\r": 3,
    b"a=x\\\n y\nc=C:\\users\n": 3,
    b"\\uxx=1\n": 1,
    b"a=\\ud83d\n": 1,
    b"a=b\na=\x00\n": 2,
    "a=b\n".encode("utf-16"): 1,
    "a=b\n".encode("utf-16-be"): 1,
    b"\xff\xfe": 1,
}


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
        " write them as \\uXXXX"
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
