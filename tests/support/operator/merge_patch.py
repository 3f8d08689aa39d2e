"""What an API server makes of a merge patch."""

from __future__ import annotations

from typing import Any


def merged(have: Any, patch: Any) -> Any:
    """Apply a merge patch (RFC 7396): a ``None`` takes a key out."""
    if not isinstance(patch, dict):
        return patch
    found = dict(have) if isinstance(have, dict) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = merged(found.get(key), value)
    return found
