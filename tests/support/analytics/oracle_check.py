"""Compares an analysis with the oracle, row by row and figure by figure."""

from __future__ import annotations

from failback.analytics.report.measures.groups import group_figures
from failback.analytics.report.measures.lookups import Figures, group_names, topics_of
from failback.analytics.report.measures.loss import losses_of
from failback.analytics.run.history import GroupQueue
from tests.support.analytics.oracle import Oracle
from tests.support.analytics.run_analysis import Analysed


def assert_agrees(analysis: Analysed, oracle: Oracle) -> None:
    """Class, cause, harm, distances, counts, fates and order are those of the oracle."""
    rows = {row["did"]: row for row in analysis.rows.to_pylist()}
    for did, cls in oracle.classes.items():
        found = rows.get(did)
        assert (found["cls"] if found else "PRIMARY") == cls, did
        if found is None:
            continue
        assert (found["cause"], found["inherited"]) == (
            oracle.causes.get(did),
            did in oracle.inherited,
        ), found
        assert bool(found["after_success"]) == oracle.after[did], did
    seen = {a.holder: number for number, a in enumerate(analysis.history.assignments)}
    for a in oracle.assigns:
        number = seen[GroupQueue(*a["queue"]), a["inc"], a["pqe"]]
        distance = analysis.distances[number]
        assert (distance.d_commit, distance.d_proc) == oracle.distances(a), a
        again = analysis.redelivered.get(number)
        assert (again.messages if again else 0) == len(oracle.redelivered(a)), a
    figures = Figures(analysis)
    counts, _ = losses_of(figures)
    for name in group_names(figures):
        shown = group_figures(figures, name, counts)
        expected = oracle.counts(name)
        assert {key: shown[key] for key in expected} == expected, name
        assert sum(shown["causes"].values()) + shown["unattributed"] == shown["dup"]
        assert sum(shown["report_groups"].values()) == shown["dup"]
        fates = oracle.fates(name, topics_of(figures, name))
        assert {fate: n for fate, n in counts[name].items() if n} == fates, name
        if "T" in analysis.folder.ordered_topics:
            assert (shown["ooo_first"], shown["ooo_replay"]) == oracle.inversions(name, "T")
