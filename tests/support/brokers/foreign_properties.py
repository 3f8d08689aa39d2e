"""Properties texts of all editors, and what they say."""

from __future__ import annotations

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
"""Text to settings."""
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
"""Text to the line of what is wrong."""
