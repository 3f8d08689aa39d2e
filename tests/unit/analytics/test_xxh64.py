"""The surrogate of foreign messages is Spark's ``xxhash64``."""

from failback.analytics.analysis.arrays.xxh64 import SURROGATE_MASK, surrogates

# Spark 4.3.0: SELECT xxhash64('...'), for lengths on both sides of every branch of the algorithm.
SPARK = {
    "": -7444071767201028348,
    "a": -8582455328737087284,
    "abcd": -6810745876291105281,
    "7F000001": 337244872568390632,
    "7F0000010000000000000000000012AB": -3017880245315284185,
}


def test_known_values() -> None:
    texts = list(SPARK)
    assert surrogates(texts).tolist() == [SPARK[text] & SURROGATE_MASK for text in texts]


def test_texts_of_all_lengths_hash_alone_as_they_do_together() -> None:
    texts = ["x" * n + "é" for n in range(70)]
    together = surrogates(texts).tolist()
    assert together == [surrogates([text])[0] for text in texts]
    assert len(set(together)) == len(texts)
