"""The plots' script of a page: plotly.js, its basic bundle where it was fetched.

The bundle draws lines and bars, which is all that figures use. ``tools/setup_plotly.py`` puts it
beside this module; without it the whole bundle of the Python package does.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final

import plotly.offline

NAME: Final = "plotly-basic.min.js"


def _fetched() -> Traversable:
    return resources.files("failback.analytics.report.page").joinpath("plotly", NAME)


@cache
def script() -> str:
    """The script; safe inside a script element."""
    fetched = _fetched()
    if fetched.is_file():
        return fetched.read_text("utf-8").replace("</script", "<\\/script")
    text: str = plotly.offline.get_plotlyjs()
    return text


def file_name() -> str:
    """What the script is called when it is served: another version has another name."""
    return f"plotly-{_digest()}.min.js"


@cache
def _digest() -> str:
    return hashlib.sha256(script().encode()).hexdigest()[:12]
