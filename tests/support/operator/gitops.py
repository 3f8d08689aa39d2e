"""Argo CD's view of a resource: the Lua of docs/howto/gitops.md, run by a real Lua."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lupa import LuaRuntime

_PAGE = Path(__file__).resolve().parents[3] / "docs" / "howto" / "gitops.md"


def health(resource: Mapping[str, Any]) -> tuple[str, str]:
    """Return status and message that Argo CD would show of a resource."""
    text = _PAGE.read_text(encoding="utf-8")
    found = re.search(r"health\.lua: \|\n(.*?)```", text, re.DOTALL)
    assert found is not None
    lua = LuaRuntime(unpack_returned_tuples=True)
    check = lua.eval(f"function(obj) {textwrap.dedent(found[1])} end")
    answer = check(_table(lua, resource))
    return str(answer["status"]), str(answer["message"])


def _table(lua: Any, value: Any) -> Any:
    if isinstance(value, Mapping):
        return lua.table_from({key: _table(lua, each) for key, each in value.items()})
    if isinstance(value, list):
        return lua.table_from([_table(lua, each) for each in value])
    return value
