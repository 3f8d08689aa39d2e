"""The text of broker.conf: settings, and their lines."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path

import javaproperties

from failback.broker.config.config_keys import OLD_SPELLINGS
from failback.protocol.errors import ConfigError
from failback.protocol.words.reasons import why

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PropertiesFile:
    """What a properties file says; of a key that is given twice, the last counts."""

    values: dict[str, str] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    """Number of the line, from 1, in which a key's setting begins."""

    def line_of(self, key: str) -> int | None:
        """Return the line of ``key``, or of the old spelling it was read from."""
        if key in self.lines:
            return self.lines[key]
        old = (before for before, now in OLD_SPELLINGS.items() if now == key)
        return next((self.lines[spelling] for spelling in old if spelling in self.lines), None)


def read_properties(file: Path) -> PropertiesFile:
    """Read a Java properties file.

    Raises:
        ConfigError: It can't be read, or a line of it is no properties text.
    """
    read, line = PropertiesFile(), 1
    try:
        with file.open(encoding="utf-8") as text:
            for part in javaproperties.parse(text):
                if isinstance(part, javaproperties.KeyValue):
                    if part.key in read.lines:
                        before = read.lines[part.key]
                        logger.warning(
                            "%s:%d: %s replaces that of line %d", file, line, part.key, before
                        )
                    read.values[part.key] = part.value
                    read.lines[part.key] = line
                line += part.source.count("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(str(file), why(error)) from error
    except ValueError as error:
        raise ConfigError(str(file), f"line {line} is no properties text: {error}") from error
    return read
