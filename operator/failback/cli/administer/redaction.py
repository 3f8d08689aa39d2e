"""Takes secrets out of texts before they are handed to others. Pure.

A value is a secret by its name, by its form, or because the same value had such a name elsewhere.
It becomes ``***``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

HIDDEN: Final = "***"
_NAMES: Final = (
    r"pass(?:word|wd|phrase)?|secret|token|credential|cookie|authorization|signature"
    r"|(?:access|secret|api|private|account|storage|encryption|signing)[_.-]?key(?:[_.-]?id)?"
)
SECRET_NAME: Final = re.compile(rf"(?:^|[^a-z])(?:[\w.-]*?)(?:{_NAMES})", re.IGNORECASE)
_ASSIGNED: Final = re.compile(
    rf"""(?P<name>[\w.-]*(?:{_NAMES})[\w.-]*)(?P<quote>["']?)(?P<sign>\s*[=:]\s*)"""
    rf"""(?P<value>"(?:[^"\\]|\\.)*"|'[^']*'|[^\s,;&}}\]]+)""",
    re.IGNORECASE,
)
_YAML_ENTRY: Final = re.compile(
    rf"""(?P<before>name["']?\s*[:=]\s*["']?[\w.-]*(?:{_NAMES})[\w.-]*["']?\s*,?\s*"""
    r"""["']?value["']?\s*[:=]\s*)(?P<value>"(?:[^"\\]|\\.)*"|'[^']*'|[^\s,}\]]+)""",
    re.IGNORECASE,
)
_YAML_BLOCK: Final = re.compile(
    rf"""^(?P<indent>[ \t]*)(?P<name>[\w."'-]*(?:{_NAMES})[\w."'-]*)\s*:\s*[|>][+-]?\d*\n"""
    r"""(?P<body>(?:(?P=indent)[ \t]+[^\n]*\n?|\s*\n)+)""",
    re.IGNORECASE | re.MULTILINE,
)
_USER_OF_URI: Final = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*://)[^/\s@\"']+@", re.IGNORECASE)
_BEARER: Final = re.compile(r"\b(?P<kind>Bearer|Basic)\s+(?!\*\*\*)[\w.~+/=-]{6,}", re.IGNORECASE)
_PEM: Final = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
)
_FORMS: Final = re.compile(
    r"\beyJ[\w-]{8,}\.[\w-]{4,}\.[\w-]*|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bgh[pousr]_\w{20,}"
)
_SHORTEST: Final = 6
"""A shorter value is hidden beside its name only, not everywhere."""
_JSON: Final = (".json", ".jsonl")
_PLAIN: Final = frozenset({"true", "false", "null", "none", "enabled", "disabled", HIDDEN})


def is_secret_name(name: str) -> bool:
    """Tell whether a value of this name is a secret."""
    return SECRET_NAME.search(name) is not None


class Redaction:
    """Remembers the secrets it saw, and hides them in every text."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._known: set[str] = set()
        for name, value in (environment or {}).items():
            if is_secret_name(name):
                self._note(value)

    def learn(self, text: str) -> None:
        """Note the secrets of a text: of all texts, before the first of them is cleaned."""
        for pattern in (_ASSIGNED, _YAML_ENTRY):
            for found in pattern.finditer(text):
                self._note(found["value"])
        for found in _YAML_BLOCK.finditer(text):
            for line in found["body"].splitlines():
                self._note(line)

    def clean(self, text: str) -> str:
        """Return the text without secrets."""
        text = _PEM.sub(HIDDEN, text)
        text = _YAML_BLOCK.sub(lambda m: f"{m['indent']}{m['name']}: {HIDDEN}\n", text)
        text = _YAML_ENTRY.sub(lambda m: m["before"] + _same_quotes(m["value"]), text)
        text = _USER_OF_URI.sub(rf"\g<scheme>{HIDDEN}@", text)
        text = _BEARER.sub(rf"\g<kind> {HIDDEN}", text)
        text = _ASSIGNED.sub(
            lambda m: m["name"] + m["quote"] + m["sign"] + _same_quotes(m["value"]), text
        )
        text = _FORMS.sub(HIDDEN, text)
        for secret in sorted(self._known, key=len, reverse=True):
            text = text.replace(secret, HIDDEN)
        return text

    def clean_json(self, text: str) -> str:
        """Return JSON or JSON Lines without secrets; other text is cleaned as text."""
        try:
            documents = [json.loads(text)]
            lines = False
        except ValueError:
            try:
                documents = [json.loads(line) for line in text.splitlines() if line.strip()]
            except ValueError:
                return self.clean(text)
            lines = True
        cleaned = [self._value(each) for each in documents]
        if lines:
            return "".join(json.dumps(each) + "\n" for each in cleaned)
        return json.dumps(cleaned[0], indent=2) + "\n"

    def _value(self, value: Any) -> Any:
        if isinstance(value, dict):
            named = is_secret_name(str(value.get("name", "")))
            return {
                key: HIDDEN
                if (is_secret_name(str(key)) or (named and key == "value")) and _says(each)
                else self._value(each)
                for key, each in value.items()
            }
        if isinstance(value, list):
            return [self._value(each) for each in value]
        return self.clean(value) if isinstance(value, str) else value

    def _note(self, value: str) -> None:
        plain = value.strip().strip("\"'").strip()
        if len(plain) >= _SHORTEST and plain.lower() not in _PLAIN and not plain.isdecimal():
            self._known.add(plain)


def _says(value: object) -> bool:
    """Whether there is anything to hide: a switch or a number is no secret."""
    return isinstance(value, (str, list, dict)) and bool(value)


def _same_quotes(value: str) -> str:
    quote = value[0] if value[:1] in "\"'" and value[:1] else ""
    if value.strip("\"'").lower() in _PLAIN:
        return value
    return f"{quote}{HIDDEN}{quote}"


def cleaned(texts: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return texts by name without secrets; a secret of one text is hidden in all."""
    redaction = Redaction(environment)
    for text in texts.values():
        redaction.learn(text)
    return {
        name: (redaction.clean_json if name.endswith(_JSON) else redaction.clean)(text)
        for name, text in texts.items()
    }
