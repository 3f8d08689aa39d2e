"""What a peer sends may cost at most a small multiple of its size in memory: strings of JSON."""

from __future__ import annotations

import pytest

from tests.support.processes.peak_memory import peak_memory

pytestmark = pytest.mark.foreign

MIB = 1 << 20
TEXTS = {
    "plain": "a" * (4 * MIB),
    "escapes": "\\n" * (2 * MIB),
    "an escape among letters": "aaa\\n" * (MIB * 4 // 5),
    "not ended": "a" * (4 * MIB) + "\\",
}


@pytest.mark.parametrize("text", TEXTS)
def test_a_long_string_costs_at_most_eight_times_its_size(text: str) -> None:
    body = '{{"a":1}:"' + TEXTS[text] + '"}'
    with peak_memory("failback.protocol.fastjson:loads", b"{{}:1}") as child:
        assert child.measure(body.encode()).peak_bytes < 8 * len(body)
