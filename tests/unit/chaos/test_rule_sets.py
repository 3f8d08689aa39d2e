"""Whose rules a run's brokers follow, by the version that they say."""

from __future__ import annotations

import pytest

from failback.chaos.run.run_document import rule_set, slave_sync_ms
from failback.client.admin.queue_offsets import COPIES_NONE
from failback.operator.engines.quirks import quirk
from failback.operator.local.apache_release import TESTED


@pytest.mark.parametrize(
    ("version", "rules"),
    [
        ("V4_9_3", "V4_9_3"),
        ("V4_9_4", "4.9.8"),
        ("V4_9_7", "4.9.8"),
        ("V5_1_3", "V5_1_3"),
        ("V5_1_4", "5.x"),
        ("V5_3_3", "5.x"),
        ("V5_5_0", "5.x"),
        ("V5_6_0", "V5_6_0"),
        ("HIGHER_VERSION", "HIGHER_VERSION"),
        ("unknown", "unknown"),
    ],
)
def test_rules_hold_from_the_first_to_the_last_version_that_has_them(
    version: str, rules: str
) -> None:
    assert rule_set(version) == rules


@pytest.mark.parametrize("version", TESTED)
def test_what_a_bound_rests_on_is_what_the_operator_knows(version: str) -> None:
    shown = f"V{version.replace('.', '_')}"
    assert rule_set(shown) != shown
    assert slave_sync_ms(shown) == 1000 * int(quirk("slaveSyncSeconds", "apache", version))
    assert (shown not in COPIES_NONE) == quirk("slaveCopiesOffsets", "apache", version)
