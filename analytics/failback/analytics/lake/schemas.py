"""Arrow schemas as lines of ``name kind`` pairs, as the consume log's tables are written down."""

from __future__ import annotations

import pyarrow as pa

from failback.client.consumelog.schema import arrow_type


def schema_of(text: str) -> pa.Schema:
    """``lane l, ukey s, age d`` as a schema.

    Kinds are those of :mod:`failback.client.consumelog.schema`; ``d`` is a float.
    """
    pairs = (pair.split() for pair in text.split(","))
    return pa.schema(
        [(name, pa.float64() if kind == "d" else arrow_type(kind)) for name, kind in pairs]
    )
