"""Java properties text: from the bytes of a file to its settings and their lines. Pure.

java.util.Properties takes every byte for a letter of ISO-8859-1, so that no file is wrong by a
comment. Here a text that is UTF-8 is read as such, a mark at its beginning is skipped, and all
other bytes are read as Java does.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import javaproperties

from failback.common.text import visible
from failback.protocol.errors import ConfigError

_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_HALF_CHARACTER: Final = re.compile("[\ud800-\udfff]")
_SEPARATOR: Final = re.compile(r"[ \t\f]*[=: \t\f]")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")
"""What would make one setting look like two where settings are listed by line."""
_SECRET: Final = re.compile(
    r"^[^=]*(?:passw|secret|credential|token|access_?key)|(?:password|secretKey)\"\s*:",
    re.IGNORECASE,
)
"""A setting with a secret in it, by its key or by the names in its value, which may be JSON."""
_WIDE: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True, slots=True)
class Properties:
    """What a properties text says; of a key that is given twice, the last counts."""

    values: dict[str, str] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    """Number of the line, from 1, in which a key's setting begins."""
    remarks: list[str] = field(default_factory=list)
    """Warnings for the author of the file: a sentence each, about keys and lines."""


def listed(settings: Mapping[str, str]) -> str:
    """Return settings by line, to be shown: of a secret only that it is set."""
    lines = ((key, value, _SECRET.search(f"{key}={value}")) for key, value in settings.items())
    return "".join(
        f"{visible(key)}={'***' if value and secret else visible(value)}\n"
        for key, value, secret in lines
    )


def properties_of(data: bytes, file: Path | None = None) -> Properties:
    """Return the settings of a text.

    Args:
        file: The file's name, for messages.

    Raises:
        ConfigError: It is UTF-16, holds a zero byte, or an escape is no character.
    """
    text, is_utf_8 = _text_of(data, file)
    found = Properties()
    for line, element in _settings(text, file):
        key, value = element.key, element.value
        if _HALF_CHARACTER.search(key + value):
            what = "half a character: \\u escapes of its kind come in pairs"
            raise _refusal(file, line, element.source, what)
        if key in found.lines:
            found.remarks.append(f"line {line}: {key} replaces that of line {found.lines[key]}")
        if not element.source.isascii():
            how = "UTF-8, and by Java as ISO-8859-1" if is_utf_8 else "ISO-8859-1, as by Java"
            remark = f"{key} has letters beyond ASCII, read as {how}: write them as \\u escapes"
            found.remarks.append(f"line {line}: {remark}")
        found.values[key], found.lines[key] = value, line
    return found


def has_control(text: str) -> bool:
    """Tell whether a text holds a control character other than a tab."""
    return _CONTROL.search(text) is not None


def _text_of(data: bytes, file: Path | None) -> tuple[str, bool]:
    """Return the text, and whether it is UTF-8."""
    if data.startswith(_WIDE):
        raise _of_line(file, 1, "is UTF-16 text: store it as UTF-8")
    if (zero := data.find(0)) >= 0:
        line = 1 + len(_LINE_END.findall(data[:zero].decode("iso-8859-1")))
        raise _of_line(file, line, "holds a zero byte, which no text has: store it as UTF-8")
    try:
        return data.decode("utf-8-sig"), True
    except UnicodeDecodeError:
        return data.removeprefix(codecs.BOM_UTF8).decode("iso-8859-1"), False


def _settings(text: str, file: Path | None) -> Iterator[tuple[int, javaproperties.KeyValue]]:
    """Give each setting with the line in which it begins."""
    line, at = 1, 0
    elements = javaproperties.parse(text)
    while True:
        try:
            element = next(elements, None)
        except javaproperties.InvalidUEscapeError as error:
            what = f"{error.escape}, which is no character: a \\ itself is written \\\\"
            raise _refusal(file, line, text[at : at + 200], what) from error
        if element is None:
            return
        if isinstance(element, javaproperties.KeyValue):
            yield line, element
        line += len(_LINE_END.findall(element.source))
        at += len(element.source)


def _refusal(file: Path | None, line: int, source: str, what: str) -> ConfigError:
    """Return an error about what the setting at the beginning of ``source`` holds."""
    first = _LINE_END.split(source.lstrip(" \t\f"), maxsplit=1)[0]
    key = _SEPARATOR.split(first, maxsplit=1)[0][:80]
    error = ConfigError(key or "properties", f"holds {what}", file=file)
    error.line = line
    return error


def _of_line(file: Path | None, line: int, problem: str) -> ConfigError:
    error = ConfigError("properties", problem, file=file)
    error.line = line
    return error
