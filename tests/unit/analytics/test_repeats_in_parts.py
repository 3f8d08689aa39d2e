"""Deliveries that occur more than once, reduced in any parts: the joined rows are the same."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from failback.analytics.analysis.arrays.columns import Columns
from failback.analytics.analysis.arrays.xxh64 import surrogates, surrogates_of
from failback.analytics.analysis.causes.repeats import RepeatsReduction
from failback.analytics.analysis.counting import tables
from failback.analytics.analysis.counting.partials.resolution import Resolution
from failback.analytics.analysis.engines.joins import join_depths, join_values
from tests.support.analytics.histories import random_history
from tests.support.analytics.repeats_reduction import reduction
from tests.support.analytics.run_analysis import Analysed, analysed
from tests.support.analytics.run_builder import RunBuilder, merged
from tests.support.common.counts import examples

COARSE = Resolution(exact=False, omid_share=2)


def reduced(builder: RunBuilder, wanted: Resolution) -> tuple[Analysed, RepeatsReduction, pa.Table]:
    """The analysis, what reduces its parts, and what was sent back."""
    with tempfile.TemporaryDirectory() as kept:
        folder = builder.write(Path(kept) / "run", manifest=False)
        return (analysed(folder), *reduction(folder, wanted))


def split(rows: pa.Table, parts: int, seed: int) -> list[pa.Table]:
    """Rows in random order, all deliveries of a message in one part."""
    c = Columns(rows)
    chosen = np.random.default_rng(seed).integers(0, parts, c.count + 1)
    part = chosen[c.dense("lane", "lseq", "fkey")]
    order = np.random.default_rng(seed + 1).permutation(c.count)
    return [rows.take(pa.array(order[part[order] == number])) for number in range(parts)]


@pytest.mark.full
@settings(max_examples=examples(12), deadline=None)
@given(seed=st.integers(0, 1 << 30), parts=st.sampled_from([1, 2, 7]), exact=st.booleans())
def test_any_parts_of_whole_messages_give_equal_rows(seed: int, parts: int, exact: bool) -> None:
    random = Random(seed)
    builders = [random_history(Random(random.random()), warmup=False) for _ in range(3)]
    analysis, reduce, back = reduced(merged(builders), Resolution() if exact else COARSE)
    reduce = pickle.loads(pickle.dumps(reduce))
    classified = analysis.rows.select(tables.CLASSIFIED.names)
    whole, split_up = (
        [reduce.counted(reduce.attributed(part, back)) for part in found]
        for found in ([classified], split(classified, parts, seed))
    )
    assert join_values(split_up) == join_values(whole)
    assert join_depths(split_up)[0] == join_depths(whole)[0]
    if exact:
        assert join_values(whole) == analysis.repeats.values
        assert join_depths(whole)[0] == analysis.repeats.depths


def test_hashes_of_arrow_texts_are_those_of_texts() -> None:
    texts = ["", "a", "key-1", "x" * 40, "ä", "key-2"]
    assert surrogates_of(pa.array(texts)).tolist() == surrogates(texts).tolist()
    sliced = pa.array(["off", *texts, None]).slice(1)
    assert surrogates_of(sliced).tolist() == surrogates([*texts, ""]).tolist()
    assert surrogates_of(pa.array([b"a", b"key-1"])).tolist() == surrogates(["a", "key-1"]).tolist()
    assert not surrogates_of(pa.array([], pa.utf8())).size
