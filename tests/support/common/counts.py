"""How many seeds and examples a test tries: few in `make test`, all in `make test-all`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, Final

import pytest
from hypothesis import settings

QUICK: Final = "quick"
SOAK: Final = "soak"
QUICK_EXAMPLES: Final = 10
"""Of a property in `make test`."""
QUICK_SEEDS: Final = 5


def examples(count: int, quick: int = QUICK_EXAMPLES) -> int:
    """Return the examples of a property: ``count`` in `make soak`, a quarter in `make test-all`."""
    profile = settings.get_current_profile_name()
    fewest = min(count, quick)
    return {SOAK: count, QUICK: fewest}.get(profile, max(fewest, count // 4))


def some(values: Iterable[Any], every: int) -> list[Any]:
    """Return values for `parametrize`: those that are not the first of ``every`` are `full`.

    A value that is a tuple is one of several arguments.
    """
    return [
        pytest.param(
            *(value if isinstance(value, tuple) else (value,)),
            marks=pytest.mark.full if place % every else (),
        )
        for place, value in enumerate(values)
    ]


def each_seed(count: int) -> Callable[[Callable[..., None]], Any]:
    """Let a test run with each ``seed`` below ``count``, in two cases: the first five, and `full`.

    For cheap tests: a case has one set of fixtures for all its seeds. A failure names its seed.
    """
    parts = [
        pytest.param(range(QUICK_SEEDS), id=f"{QUICK_SEEDS} seeds"),
        pytest.param(range(QUICK_SEEDS, count), id=f"{count} seeds", marks=pytest.mark.full),
    ]

    def decorated(test: Callable[..., None]) -> Any:
        @functools.wraps(test)
        def run(seeds: range, **fixtures: Any) -> None:
            for seed in seeds:
                try:
                    test(seed=seed, **fixtures)
                except BaseException as error:
                    error.add_note(f"seed {seed}")
                    raise

        signature = inspect.signature(test)
        run.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[
                each.replace(name="seeds") if name == "seed" else each
                for name, each in signature.parameters.items()
            ]
        )
        return pytest.mark.parametrize("seeds", parts)(run)

    return decorated
