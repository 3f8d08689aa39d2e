"""A store that does without kernels for a while, to compare what both ways leave."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from failback.broker.store.index import index_service
from failback.broker.store.upkeep import recovery
from failback.broker.store.writing import dispatch


@contextmanager
def in_python() -> Iterator[None]:
    """Do without kernels. An index file goes by what it gets: packed keys or tuples."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recovery, "_good", recovery._good_records)
        patch.setattr(dispatch, "_scan_plain", None)
        patch.setattr(dispatch, "pack_keys", None)
        patch.setattr(index_service, "pack_keys", None)
        yield
