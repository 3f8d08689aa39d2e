"""The clocks of traced clients, against the clock of the brokers that keep the trace. Pure.

A trace message carries when the client sent it and when the broker stored it. The difference is
the offset between the two clocks plus the time under way; its least value is nearest to the offset
alone. How far the usual one lies above the least says how steady the way is, which is the error
that is claimed. A trace is not under way for long: where two differ by more, a clock jumped, and
all of it is claimed. All brokers of the trace topic are taken for one clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from failback.analytics.analysis.arrays.intervals import Ints
from failback.analytics.trace.deliveries import codes, numbers

MS_NS: Final = 1_000_000
JUMP_MS: Final = 10_000
"""Between a client and a broker no trace is under way for so long."""
MOST_MS: Final = 30 * 86_400_000
"""A clock that is further off than this is no clock: it isn't followed, and the error says so."""


@dataclass(frozen=True, slots=True)
class ClientClock:
    """What to add to a client's clock to get the brokers', and how sure that is; ns."""

    host: str
    offset_ns: int
    error_ns: int


def client_clocks(records: pa.Table) -> list[ClientClock]:
    """One clock per client address, from records and their carriers (``pages.RECORDS``)."""
    if not records.num_rows:
        return []
    hosts = records.column("host").combine_chunks()
    number: Ints = codes(hosts)
    delay = numbers(records, "store_ms") - numbers(records, "born_ms")
    found = []
    for one in np.unique(number).tolist():
        rows = np.flatnonzero(number == one)
        least = int(delay[rows].min())
        usual, most = int(np.median(delay[rows])), int(delay[rows].max())
        above = (most if most - least > JUMP_MS else usual) - least
        offset = max(-MOST_MS, min(MOST_MS, least))
        error = min(MOST_MS, abs(least - offset) + above + 1)
        name = hosts[int(rows[0])].as_py()
        found.append(ClientClock(name or "", offset * MS_NS, error * MS_NS))
    return sorted(found, key=lambda clock: clock.host)
