"""Bodies for schemathesis: streams of segments, whole and changed, and bytes that are nothing."""

from __future__ import annotations

import hashlib
import re
import tempfile
from pathlib import Path
from typing import Any

import schemathesis
from hypothesis import strategies as st

from failback.client.consumelog.upload.lake_files import ARROW_STREAM
from tests.support.analytics.collector_lab import uploads_of, write_log


def _streams() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        write_log(Path(folder), run="r", deliveries=20)
        return [upload.body for upload in uploads_of(Path(folder))]


_WHOLE = st.sampled_from(_streams())
_CUT = st.tuples(_WHOLE, st.integers(0, 500)).map(lambda pair: pair[0][: pair[1]])
_BODIES = st.one_of(_WHOLE, _CUT, st.binary(max_size=300))


@schemathesis.serializer(ARROW_STREAM)
def as_it_is(_: Any, value: Any) -> Any:
    """Bytes stay bytes; what else is generated for a wrong body becomes text."""
    return value if isinstance(value, bytes) else str(value).encode(errors="replace")


schemathesis.openapi.media_type(ARROW_STREAM, _BODIES)


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Make half of the uploads agree with their hash, or none would get past it."""
    body, headers = case.body, case.headers
    if not isinstance(body, bytes) or len(body) % 2 or "segments" not in case.path:
        return
    named = headers is not None and headers.get("X-Content-SHA256")
    if isinstance(named, str) and re.fullmatch("[0-9a-f]{64}", named):
        headers["X-Content-SHA256"] = hashlib.sha256(body).hexdigest()
