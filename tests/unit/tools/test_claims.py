"""docs/claims.md and docs/experiments.md: of the figures that are kept, with a verdict of each."""

from __future__ import annotations

import json
from typing import Any

from tools import claims
from tools.claims_figures import CLAIMS, growth

from failback.cli.shared.bundled import bundled_paths


def row(arm: str, engine: str = "Failback", again: int = 0, **figures: Any) -> dict[str, Any]:
    return {
        "experiment": "claim-1-one-side-restarts",
        "arm": arm,
        "engine": engine,
        "date": "2026-11-30",
        "verdict": "Pass",
        "why": "",
        "delivered": 100 + again,
        "distinct": 100,
        "again": again,
        "lost": 0,
        "figures": figures,
    }


def test_the_pages_are_those_of_the_kept_figures() -> None:
    measured = json.loads(claims.MEASURED.read_text())
    assert claims.CLAIMS_PAGE.read_text() == claims.claims_page(measured)
    assert claims.EXPERIMENTS_PAGE.read_text() == claims.experiments_page(measured)
    known = bundled_paths()
    assert {each["experiment"] for each in measured} <= set(known)
    assert {claim.experiment for claim in CLAIMS} <= set(known)


def test_a_claim_is_true_wrong_open_or_not_run() -> None:
    arms = ("stay", "handover", "scale-up")
    (first, *_) = claims.claims_page([]).split("## 2.")
    assert first.count("| not run |") == 3
    for again, verdict in ((0, "true"), (40, "wrong")):
        page = claims.claims_page([row(arm, again=again) for arm in arms])
        assert f"| Failback | {verdict} | stay | Pass |" in page
        assert ("Wrong on Failback: " in page) is (verdict == "wrong")
        assert "40 of 100 (40.0 %)" in page or not again
    assert "| Failback | open | stay | Pass |" in claims.claims_page([row("stay")])


def test_a_run_without_a_report_is_on_the_page_with_its_reason() -> None:
    lost = {"experiment": "kill", "arm": "base", "engine": "Apache 4.9.7", "date": "2026-11-30"}
    page = claims.experiments_page(
        [{**lost, "verdict": "Inconclusive", "why": "a | b", "figures": {}}]
    )
    assert "| Apache 4.9.7 | base | Inconclusive: a / b | - | - | – | 2026-11-30 |" in page


def test_a_table_grows_by_what_its_queues_moved_on_in_the_span() -> None:
    samples = [
        {"bid": 1, "qid": qid, "off": off, "t": t}
        for t, qid, off in ((1, 0, 10), (2, 0, 14), (2, 1, 5), (3, 1, 5), (9, 0, 99))
    ]
    assert growth(samples, 1, 1, 9) == 4
    assert growth(samples, 0, None, None) == 0
