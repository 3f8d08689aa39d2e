"""One rule for the names of topics and groups that are typed, whichever command they are typed for.

Each is a ``callback`` of options and arguments: a name that nothing may be called is refused before
anybody is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer

from failback.protocol.names import NameRefused, check_group, check_topic


def groups(value: Any) -> Any:
    """Refuse what no consumer group may be called; takes one name, several or none."""
    return _checked(check_group, value)


def topics(value: Any) -> Any:
    """Refuse what no topic may be called; takes one name, several or none."""
    return _checked(check_topic, value)


def group_of_client(value: str) -> str:
    """Refuse what no group may be called in ``GROUP`` or ``GROUP@CLIENT_ID``."""
    _checked(check_group, value.partition("@")[0])
    return value


def _checked(check: Callable[[str], None], value: Any) -> Any:
    for each in value if isinstance(value, (list, tuple)) else () if value is None else (value,):
        try:
            check(each)
        except NameRefused as error:
            raise typer.BadParameter(str(error)) from None
    return value
