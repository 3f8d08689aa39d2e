"""What the name servers said over the last minute: the master of each pair, and since when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from failback.operator.planning.observed.observed import Route

_REMEMBERED_SECONDS: Final = 60.0


class RouteHistory:
    """The addresses seen as id 0 of each pair of one cluster.

    One answer can't show two masters, because a registration replaces the address of its id:
    they appear as an address that alternates, or as name servers that differ. An address that
    another one followed for good is that of a master before its restart.
    """

    def __init__(self) -> None:
        self._seen: dict[int, dict[str, tuple[float, float]]] = {}
        """Pair → address → when it was seen first and last."""
        self._agreed: dict[int, tuple[str, float]] = {}
        self._without: dict[int, float] = {}

    def note(self, routes: Sequence[Route], broker_names: Mapping[int, str], now: float) -> None:
        """Take in the newest answers of all name servers."""
        tables = [route.brokers for route in routes if route.brokers is not None]
        for pair, name in broker_names.items():
            now_seen = {table[name][0] for table in tables if 0 in table.get(name, {})}
            seen = self._seen.setdefault(pair, {})
            for address in now_seen:
                seen[address] = (seen.get(address, (now, now))[0], now)
            for address, (_, last) in list(seen.items()):
                if now - last > _REMEMBERED_SECONDS:
                    del seen[address]
            self._note_agreement(pair, now_seen, now)
            if now_seen or not tables:
                self._without.pop(pair, None)
            else:
                self._without.setdefault(pair, now)

    def _note_agreement(self, pair: int, now_seen: set[str], now: float) -> None:
        if len(now_seen) != 1:
            self._agreed.pop(pair, None)
            return
        (address,) = now_seen
        before = self._agreed.get(pair)
        if before is None or before[0] != address:
            self._agreed[pair] = (address, now)

    @property
    def master_since(self) -> dict[int, float]:
        """Pair → since when all answering name servers agree on one address."""
        return {pair: since for pair, (_, since) in self._agreed.items()}

    @property
    def recent_masters(self) -> dict[int, tuple[str, ...]]:
        """Pair → addresses seen within the last minute, without those that were followed."""
        return {pair: _not_followed(seen) for pair, seen in self._seen.items() if seen}

    @property
    def masterless_since(self) -> dict[int, float]:
        """Pair → since when no answering name server lists a master."""
        return dict(self._without)


def _not_followed(seen: Mapping[str, tuple[float, float]]) -> tuple[str, ...]:
    """Return the newest address, and those that were seen after another one had appeared."""
    newest = max(last for _, last in seen.values())
    return tuple(
        sorted(
            address
            for address, (begun, last) in seen.items()
            if last == newest
            or any(
                other != address and first <= last and begun <= end
                for other, (first, end) in seen.items()
            )
        )
    )
