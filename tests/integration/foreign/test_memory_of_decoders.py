"""What a peer sends may cost at most a small multiple of its size in memory: every decoder.

The kernel counts: a child decodes shapes that are generated under a seed, each of them once at the
longest that its door lets in. `make soak` runs the full counts.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Collection
from contextlib import closing
from typing import Final

import pytest

from tests.support.common.decoders import DECODERS, MIB
from tests.support.common.samples import SAMPLES
from tests.support.common.shapes import SHAPES, length_of, spoilt
from tests.support.processes.peak_memory import PeakMemory, peak_memory

pytestmark = [pytest.mark.foreign, pytest.mark.long]

SEED: Final = int(os.environ.get("FAILBACK_SHAPES_SEED", "32"))
SHAPES_OF_A_RUN: Final = 1_000
SHAPES_OF_A_SOAK: Final = 100_000
TEXTS: Final = ("a long text", "a text of escapes", "a text of escapes among letters")
EXPECTED: Final = ("", "ProtocolError", "ConfigError", "Problem", "ValueError")
"""What a decoder may say: nothing, or what its door makes an answer of."""


class Trial:
    """Measures shapes of one decoder. One that is above its budget is measured again, alone."""

    def __init__(self, name: str) -> None:
        self._function = f"tests.support.common.decoders:{name}"
        self._sample = SAMPLES.get(name, b"{}")
        self._decoder = DECODERS[name]
        self._child = PeakMemory(self._function, self._sample)
        self.tried = 0

    def measure(self, label: str, body: bytes, payload: bytes) -> None:
        self.tried += 1
        budget = self._decoder.budget(len(body))
        outcome = self._child.measure(payload)
        if outcome.peak_bytes > budget:  # or the allocator has kept it of the one before
            self.close()
            self._child = PeakMemory(self._function, self._sample)
            outcome = self._child.measure(payload)
        place = f"shape {self.tried}, {label}, {len(body)} bytes, seed {SEED}"
        assert outcome.peak_bytes <= budget, f"{place}: {outcome}"
        assert outcome.error.partition(":")[0] in EXPECTED, f"{place}: {outcome}"

    def close(self) -> None:
        self._child.close()


def try_shapes(name: str, count: int, longest: Collection[str] = SHAPES) -> int:
    """Decode shapes within the budget; return how many were tried.

    Args:
        longest: Shapes that are tried at the longest that the decoder's door lets in.
    """
    decoder = DECODERS[name]
    chance = random.Random(f"{SEED} {name}")
    labels = sorted(SHAPES)
    with closing(Trial(name)) as trial:
        for label in longest:
            body = SHAPES[label](chance, decoder.longest)
            trial.measure(label, body, decoder.wrap(body))
        while trial.tried < count:
            if name in SAMPLES and chance.random() < 0.4:
                body = spoilt(chance, SAMPLES[name])
                trial.measure("a sample, spoilt", body, body)
            else:
                label = chance.choice(labels)
                body = SHAPES[label](chance, length_of(chance, decoder.longest))
                trial.measure(label, body, decoder.wrap(body))
        return trial.tried


@pytest.mark.parametrize("name", DECODERS)
def test_no_shape_takes_more_than_its_budget(
    name: str, record_property: Callable[[str, object], None]
) -> None:
    """A sixth of the shapes are as long as can be; those of the next decoder are others."""
    longest = sorted(SHAPES)[list(DECODERS).index(name) % 6 :: 6]
    record_property("inputs", try_shapes(name, SHAPES_OF_A_RUN // len(DECODERS) + 1, longest))


@pytest.mark.soak
@pytest.mark.parametrize("name", DECODERS)
def test_no_shape_of_very_many_takes_more_than_its_budget(name: str) -> None:
    assert try_shapes(name, SHAPES_OF_A_SOAK) >= SHAPES_OF_A_SOAK


@pytest.mark.parametrize("label", TEXTS)
@pytest.mark.parametrize("name", ["heartbeat", "registration", "offsets", "any_json"])
def test_a_long_text_costs_at_most_eight_times_its_size(name: str, label: str) -> None:
    length = DECODERS[name].longest if name in DECODERS else 4 * MIB
    body = SHAPES[label](random.Random(SEED), length)
    with peak_memory(f"tests.support.common.decoders:{name}", b"{}") as child:
        assert child.measure(body).peak_bytes < 8 * len(body) + MIB
