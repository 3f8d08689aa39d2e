"""How many queue files stay open: all of them where the system has descriptors enough."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from failback.broker.__main__ import _allow_many_files
from failback.broker.store.config import StoreConfig

_UNLIMITED = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("descriptors", "files"),
    [(256, 128), (1024, 128), (20_000, 8976), (1 << 20, 16_384), (_UNLIMITED, 16_384)],
)
def test_descriptors_bound_the_open_queue_files(
    monkeypatch: pytest.MonkeyPatch, descriptors: int, files: int
) -> None:
    limits = (descriptors, descriptors)
    monkeypatch.setattr(resource, "getrlimit", lambda _which: limits)
    config = StoreConfig(Path("/s"), bytes(8))
    assert config.max_mapped_queue_files == files


def test_a_broker_raises_its_limit_as_far_as_it_may() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    try:
        _allow_many_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
