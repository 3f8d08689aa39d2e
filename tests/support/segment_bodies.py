"""Bodies for schemathesis: streams of segments, whole and changed, and bytes that are nothing."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import schemathesis
from hypothesis import strategies as st

from failback.client.consumelog.lake_files import ARROW_STREAM, PARQUET
from tests.support.collector_lab import uploads_of, write_log


def _streams() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        write_log(Path(folder), run="r", deliveries=20)
        return [upload.body for upload in uploads_of(Path(folder))]


_WHOLE = st.sampled_from(_streams())
_CUT = st.tuples(_WHOLE, st.integers(0, 500)).map(lambda pair: pair[0][: pair[1]])
_BODIES = st.one_of(_WHOLE, _CUT, st.binary(max_size=300))


@schemathesis.serializer(ARROW_STREAM, PARQUET)
def as_it_is(_: Any, value: Any) -> Any:
    """Bytes stay bytes; what else is generated for a wrong body becomes text."""
    return value if isinstance(value, bytes) else str(value).encode(errors="replace")


for _kind in (ARROW_STREAM, PARQUET):
    schemathesis.openapi.media_type(_kind, _BODIES)
