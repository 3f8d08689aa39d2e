"""Arrow tables as pandas has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from failback.analytics.errors import ReportInputError
from failback.common.text import install

if TYPE_CHECKING:
    import pandas as pd


def to_frame(table: pa.Table) -> pd.DataFrame:
    """Return a table as a frame; integers are ``Int64``, so that a missing one leaves them exact.

    Raises:
        ReportInputError: pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise ReportInputError(f"pandas is not installed: {install('spark')}") from error
    exact = {pa.int64(): pd.Int64Dtype(), pa.int32(): pd.Int32Dtype(), pa.int8(): pd.Int8Dtype()}
    found: pd.DataFrame = table.to_pandas(types_mapper=exact.get)
    return found
