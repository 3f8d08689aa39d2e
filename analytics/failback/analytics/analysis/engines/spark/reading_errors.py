"""Names the file that Spark cannot read: one sentence in place of its stack."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from failback.analytics.errors import ReportInputError

_FILE: Final = re.compile(
    r"\[FAILED_READ_FILE[.\w]*\] Encountered error while reading file (?P<spark>\S+?)\.\s"
    r"|(?P<other>(?:\w+:)?/[^\s,:;'\"]+\.(?:parquet|orc|avro))(?![\w/.])"
)
"""As Spark says it, or any file of rows: Iceberg has readers and words of its own."""
_CAUSE: Final = re.compile(r"^\s*Caused by: (?:[\w$]+\.)*(?P<what>[\w$]+)(?:: (?P<why>.+))?$", re.M)
_LONGEST: Final = 160


@contextmanager
def naming_files() -> Iterator[None]:
    """Turn a failure of Spark to read a file into a ``ReportInputError`` that says which and why.

    What else fails inside stays as it is.
    """
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        told = str(error)
        found = _FILE.search(told)
        if found is None:
            raise
        name = found["spark"] or found["other"]
        raise ReportInputError(
            f"Spark cannot read it: {_cause(told)}; restore the file, or load its rows again", name
        ) from error


def _cause(told: str) -> str:
    """The innermost reason of a stack, shortened."""
    causes = list(_CAUSE.finditer(told))
    if not causes:
        return "it is damaged, or gone"
    last = causes[-1]
    why = re.sub(r"\w*:?/\S+", "it", last["why"] or last["what"]).strip().rstrip(".")
    return why if len(why) <= _LONGEST else f"{why[:_LONGEST]}..."
