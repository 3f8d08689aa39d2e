"""Reading the dialect: its tokens, and documents of no known class.

Source: JSONLexerBase and JSONScanner of fastjson 1.2.69 with its default features.
"""

from __future__ import annotations

import re
from typing import Any, Final, NoReturn

import msgspec

from failback.protocol.errors import ProtocolError

MAX_DEPTH: Final = 100
"""Deepest nesting read; the deepest real body has seven levels."""

# All of these are possessive: what may be given back is remembered, at 170 bytes a character.
_BLANKS: Final = re.compile(r"(?:[ \t\r\n\f\b]++|//[^\n]*+|/\*(?:[^*]++|\*(?!/))*+\*/)*+")
_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f ]*+")
_PLAIN_STRING: Final = re.compile(r'"([^"\\]*+)"')
_STRING: Final = re.compile(
    r""""([^"\\]*+(?:\\.[^"\\]*+)*+)"|'([^'\\]*+(?:\\.[^'\\]*+)*+)'""", re.DOTALL
)
_ESCAPE: Final = re.compile(r"""\\(?:u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2})|([0-7btnrvfF"'/\\]))|\\""")
_RIGHT: Final = r"""\\(?:u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}|[0-7btnrvfF"'/\\])"""
_RIGHT_STRING: Final = re.compile(
    rf""""[^"\\]*+(?:{_RIGHT}[^"\\]*+)*+"|'[^'\\]*+(?:{_RIGHT}[^'\\]*+)*+'"""
)
_ESCAPED: Final = dict(zip("01234567btnrvfF", "\0\1\2\3\4\5\6\7\b\t\n\r\v\f\f", strict=True))
_SOME_ESCAPES: Final = re.compile(r"(?:[^\\]*+\\(?:u.{4}|x.{2}|.)){1,1000}+|[^\\]++|\\", re.DOTALL)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_NUMBER: Final = re.compile(
    r"([+-]?[0-9]++(?:\.[0-9]*+)?(?:[eE][+-]?[0-9]{1,4})?)[LSBFD]?", re.ASCII
)
_WORD: Final = re.compile(r"[^\W0-9][\w$]*+|[$][\w$]*+")
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_UNTIL_BRACKET: Final = re.compile(r"""[^"'{}\[\]/]*+""")
_WORDS: Final[dict[str, Any]] = {
    "true": True,
    "false": False,
    "null": None,
    "undefined": None,
    "NaN": None,
}
ENDS: Final = "it ends too early"
_SETS: Final = frozenset({"Set", "TreeSet"})
_CLOSING: Final = {"{": "}", "[": "]"}

_INTEGER_KEY: Final = re.compile(r"(?<=[{,])(-?[0-9]+)(?=:)", re.ASCII)
_BEFORE_KEY: Final = re.compile("[{,]")
_PART_CHARACTERS: Final = 64 * 1024
"""A text is quoted in parts: an object for each of its keys would take many times its size."""
_BREAK: Final = "\x00"
"""Occurs in no JSON."""

_decode = msgspec.json.Decoder().decode


class Refused(Exception):
    """A document that is no good; ``path`` grows, from the inside out, as readers pass it on."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
        self.path = ""

    def below(self, step: str) -> Refused:
        """Put a step before the path: ``name`` of a member or ``[index]`` of a list."""
        joint = "." if self.path and not self.path.startswith("[") else ""
        self.path = f"{step}{joint}{self.path}"
        return self


class Lexer:
    """A text and a position in it; methods read a token there and move behind it."""

    __slots__ = ("position", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def peek(self) -> str:
        """Return the next character that is no blank and in no comment; empty at the end."""
        position = self.position
        text = self.text
        first = text[position : position + 1]
        if first in " \t\r\n\f\b/":
            match = _BLANKS.match(text, position)
            assert match is not None
            self.position = position = match.end()
            first = text[position : position + 1]
        return first

    def skip_commas(self) -> bool:
        """Whether there was one at least. Java takes more, and a semicolon for one."""
        found = False
        while (first := self.peek()) == "," or first == ";":
            self.position += 1
            found = True
        return found

    def string(self) -> str:
        """Take a string in quotes of either kind."""
        match = _PLAIN_STRING.match(self.text, self.position)
        if match is not None:
            self.position = match.end()
            return match[1]
        match = _STRING.match(self.text, self.position)
        if match is None:
            self.fail("a string that does not end")
        content = match[1] if match[1] is not None else match[2]
        if "\\" in content:
            content = self._unescaped(content)
        self.position = match.end()
        return content

    def _pass_string(self) -> None:
        match = _RIGHT_STRING.match(self.text, self.position)
        if match is None:
            self.string()  # says what is wrong with it
        else:
            self.position = match.end()

    def _unescaped(self, content: str) -> str:
        # In parts: a substitution keeps an object for each escape until its end.
        content = "".join(
            _ESCAPE.sub(self._escaped, part[0]) for part in _SOME_ESCAPES.finditer(content)
        )
        if _SURROGATE.search(content):  # pairs become what they mean; there is no half alone
            content = content.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return content

    def _escaped(self, match: re.Match[str]) -> str:
        if code := match[1] or match[2]:
            return chr(int(code, 16))
        if match[3] is None:
            self.fail("an escape that there is not")
        return _ESCAPED.get(match[3], match[3])

    def number(self) -> str:
        """Take a number; return it without the letter that Java may have behind it."""
        match = _NUMBER.match(self.text, self.position)
        if match is None:
            self.fail(f"unexpected {self.text[self.position : self.position + 20]!r}")
        self.position = match.end()
        return match[1]

    def word(self) -> str:
        """Take a word without quotes."""
        match = _WORD.match(self.text, self.position)
        if match is None:
            found = self.text[self.position : self.position + 20]
            self.fail(f"unexpected {found!r}" if found else ENDS)
        self.position = match.end()
        return match[0]

    def colon(self) -> None:
        if self.peek() != ":":
            self.fail("no colon behind a key")
        self.position += 1

    def begin(self) -> None:
        """Pass control characters before the document, as Java does."""
        self._pass(_CONTROLS)

    def end(self) -> None:
        """See that nothing follows. Clients in C send the NUL that ends their text."""
        self._pass(_CONTROLS)
        if self.peek():
            self.fail("text behind the document")

    def _pass(self, pattern: re.Pattern[str]) -> None:
        match = pattern.match(self.text, self.position)
        assert match is not None
        self.position = match.end()

    def skip(self) -> None:
        """Take any value, without making anything of it."""
        if self.opens("{"):
            open_brackets = ["{"]
        elif self.opens("["):
            open_brackets = ["["]
        elif self.peek() in ('"', "'"):
            self._pass_string()
            return
        else:
            self.scalar()
            return
        while open_brackets:
            match = _UNTIL_BRACKET.match(self.text, self.position)
            assert match is not None
            self.position = match.end()
            first = self.peek()
            if first in ('"', "'"):
                self._pass_string()
                continue
            if first == "/":
                self.fail("a comment that does not end")
            self.position += 1
            if first in _CLOSING:
                open_brackets.append(first)
                if len(open_brackets) > MAX_DEPTH:
                    self.fail(f"nested deeper than {MAX_DEPTH}")
            elif first == _CLOSING[open_brackets[-1]]:
                open_brackets.pop()
            elif first in ("}", "]", ""):
                self.position -= 1
                self.fail(
                    f"{first} where {open_brackets[-1]} is open" if first else "it ends too early"
                )

    def raw(self) -> str:
        """Take any value; return its text."""
        self.peek()
        start = self.position
        self.skip()
        return self.text[start : self.position]

    def scalar(self) -> Any:
        """Take a string, a word that means a value, or a number, which comes as its text."""
        first = self.peek()
        if first in ('"', "'"):
            return self.string()
        if first.isdigit() or first in ("+", "-"):
            return Number(self.number())
        start = self.position
        word = self.word()
        if word not in _WORDS:
            self.position = start
            self.fail(f"unexpected {word[:20]}")
        return _WORDS[word]

    def opens(self, bracket: str) -> bool:
        """Whether an opening bracket comes, behind ``Set`` too; takes it."""
        first = self.peek()
        if first == bracket:
            self.position += 1
            return True
        if bracket == "[" and first in ("S", "T"):
            start = self.position
            if self.word() in _SETS and self.peek() == "[":
                self.position += 1
                return True
            self.position = start
        return False

    def fail(self, what: str) -> NoReturn:
        raise Refused(what)

    def place(self) -> str:
        """Return where the position is, counted from 1."""
        line = self.text.count("\n", 0, self.position) + 1
        column = self.position - self.text.rfind("\n", 0, self.position)
        return f"line {line}, column {column}"


class Number(str):
    """The text of a number."""

    __slots__ = ()

    def value(self) -> int | float:
        return int(self) if _INTEGER.fullmatch(self) else float(self)


def text_of(data: bytes | str) -> str:
    """Return the text without a byte order mark.

    Raises:
        ProtocolError: It is no UTF-8.
    """
    try:
        text = data if isinstance(data, str) else bytes(data).decode()
    except UnicodeError as error:
        raise ProtocolError(f"JSON that is no UTF-8: {error}") from error
    return text.removeprefix("\ufeff")


def loads(data: bytes | str) -> Any:
    """Read one document.

    Unquoted integer keys become ``int``, object keys tuples of sorted pairs, quoted keys stay
    ``str``. The last of equal keys wins. Numbers are ``int`` or ``float``.

    Raises:
        ProtocolError: It is neither standard JSON nor this dialect, or it uses ``$ref``: says
            line and column.
    """
    text = text_of(data)
    try:
        if '"$ref"' not in text:
            return _decode(text)  # nearly every body is standard JSON: 20 times faster
    except (msgspec.MsgspecError, RecursionError):
        pass
    lexer = Lexer(text)
    lexer.begin()
    try:
        value = _value(lexer, 0)
        lexer.end()
    except Refused as refused:
        raise ProtocolError(f"undecodable JSON at {lexer.place()}: {refused.what}") from None
    return value


def _value(lexer: Lexer, depth: int) -> Any:
    if depth > MAX_DEPTH:
        lexer.fail(f"nested deeper than {MAX_DEPTH}")
    if lexer.opens("{"):
        return _object(lexer, depth + 1)
    if lexer.opens("["):
        return _array(lexer, depth + 1)
    value = lexer.scalar()
    return value.value() if isinstance(value, Number) else value


def _array(lexer: Lexer, depth: int) -> list[Any]:
    values: list[Any] = []
    lexer.skip_commas()
    while lexer.peek() != "]":
        values.append(_value(lexer, depth))
        lexer.skip_commas()  # Java does without one here
    lexer.position += 1
    return values


def _object(lexer: Lexer, depth: int) -> dict[Any, Any]:
    entries: dict[Any, Any] = {}
    lexer.skip_commas()
    while lexer.peek() != "}":
        key = _key(lexer, depth)
        lexer.colon()
        if key == "$ref":
            lexer.fail("a $ref, which is not resolved")
        entries[key] = _value(lexer, depth)
        if not lexer.skip_commas() and lexer.peek() != "}":
            lexer.fail("no comma between entries" if lexer.peek() else ENDS)
    lexer.position += 1
    return entries


def _key(lexer: Lexer, depth: int) -> Any:
    first = lexer.peek()
    if first == "{":
        return _frozen(_value(lexer, depth))
    if first in ('"', "'"):
        return lexer.string()
    if first.isdigit() or first in ("+", "-"):
        number = lexer.number()
        return int(number) if _INTEGER.fullmatch(number) else number
    return lexer.word()


def _frozen(value: Any) -> Any:
    """Make a value usable as a key."""
    if isinstance(value, dict):
        return tuple(sorted(((key, _frozen(part)) for key, part in value.items()), key=repr))
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    return value


def with_quoted_keys(data: bytes | str) -> str | None:
    """Put integer keys into quotes, for readers that know the types of what they read.

    Those with blanks beside them stay, which Java does not write.

    A table of a hundred thousand offsets is ten times as quick to read so.

    Returns:
        The text, or ``None`` where there is no such key, and where a string holds a backslash: its
        end is not found so simply.

    Raises:
        UnicodeDecodeError: It is no UTF-8.
    """
    text = data if isinstance(data, str) else bytes(data).decode()
    if "\\" in text or _BREAK in text or _INTEGER_KEY.search(text) is None:
        return None
    parts, start = [], 0
    while start < len(text):
        end = _end_of_part(text, start)
        parts.append(_quoted(text[start:end]))
        start = end
    return "".join(parts)


def _end_of_part(text: str, start: int) -> int:
    """Return where a key may begin, outside of strings, some way behind ``start``."""
    end = start + _PART_CHARACTERS
    while (found := _BEFORE_KEY.search(text, end)) is not None:
        if text.count('"', start, found.start()) % 2 == 0:
            return found.start()
        if (end := text.find('"', found.start())) < 0:  # inside a string, which ends here
            break
        end += 1
    return len(text)


def _quoted(part: str) -> str:
    pieces = part.split('"')  # every second one is the content of a string
    outside = '"'.join(_INTEGER_KEY.split(_BREAK.join(pieces[::2])))
    pieces[::2] = outside.split(_BREAK)
    return '"'.join(pieces)
