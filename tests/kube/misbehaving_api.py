"""An API server that misbehaves all the time: watches that lose events, requests that fail."""

from __future__ import annotations

import random
import time
from typing import Final

from tests.support.kube_lab.proxy import MisbehavingProxy, Rule

API_SECONDS: Final = 2.0
"""How long the operator is to wait for an answer (``FAILBACK_API_TIMEOUT_SECONDS``)."""
_READS: Final = ("get", "list", "watch")
_WRITES: Final = ("patch", "create", "update", "delete")


class BadWatches:
    """Events are dropped, doubled and late; watches break, as they do when events were lost."""

    def __init__(self, proxy: MisbehavingProxy, *, seed: int, expire_seconds: float = 10.0) -> None:
        self.expired = 0
        self._proxy, self._expire_seconds = proxy, expire_seconds
        self._next = time.monotonic() + expire_seconds
        proxy.watch_events(drop=0.1, double=0.2, delay_seconds=0.3, seed=seed)

    def step(self) -> None:
        """End the watches with 410 when it is time."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + self._expire_seconds
            self._proxy.expire_watches()
            self.expired += 1


class BadAnswers:
    """Every other second a request fails: 409, 410, 429, 500 or no answer, done or not done."""

    def __init__(self, proxy: MisbehavingProxy, *, seed: int, pause_seconds: float = 2.0) -> None:
        self._proxy, self._pause_seconds = proxy, pause_seconds
        self._generator = random.Random(seed)
        self._next = time.monotonic() + pause_seconds
        self._rules: list[tuple[str, Rule]] = []

    def step(self) -> None:
        """Spoil one more request when it is time."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + self._pause_seconds
            self._rules.append(self._spoil())

    def hits(self) -> set[str]:
        """Return the kinds of trouble that requests have met."""
        return {name for name, rule in self._rules if rule.hits}

    def _spoil(self) -> tuple[str, Rule]:
        name = self._generator.choice(("409", "410", "429", "500", "500 after", "timeout", "late"))
        verb = self._generator.choice(_WRITES * 2 + _READS)
        match name:
            case "409":
                rule = self._proxy.answer(409, verb=self._generator.choice(_WRITES))
            case "410":
                self._proxy.expire_watches()
                rule = Rule({}, 0, hits=1)
            case "429":
                rule = self._proxy.answer(429, verb=verb, retry_after=1)
            case "500":
                rule = self._proxy.answer(500, verb=verb)
            case "500 after":
                rule = self._proxy.answer(500, verb=self._generator.choice(_WRITES), after=True)
            case "timeout":
                rule = self._proxy.time_out(verb=verb, seconds=API_SECONDS * 2)
            case _:
                rule = self._proxy.time_out(
                    verb=self._generator.choice(_WRITES), seconds=API_SECONDS * 2, after=True
                )
        return name, rule
