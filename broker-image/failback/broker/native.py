"""The compiled kernels of the hot paths, where there are any.

``kernels`` is the extension module, or None: then, and with ``FAILBACK_PURE=1`` in the environment,
everything runs in Python. Both ways give the same bytes; the tests run what has a kernel in both.
"""

from __future__ import annotations

import os
from types import ModuleType


def _load() -> ModuleType | None:
    if os.environ.get("FAILBACK_PURE") == "1":
        return None
    try:
        from failback.broker import _native  # type: ignore[attr-defined]
    except ImportError:
        return None
    module: ModuleType = _native
    return module


kernels = _load()
