"""Something that happens in a thread of its own while a test does something else."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Final, Self

_JOIN_SECONDS: Final = 60.0


class Beside(ABC):
    """``with``: works until the block ends. Subclasses say at what, and look at ``stopping``."""

    def __init__(self, name: str) -> None:
        self.stopping = threading.Event()
        self._thread = threading.Thread(target=self.work, name=name, daemon=True)

    @abstractmethod
    def work(self) -> None:
        """What goes on beside the test."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self._thread.join(_JOIN_SECONDS)
