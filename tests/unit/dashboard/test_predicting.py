"""The Predict page: settings of live groups to start from, and names that break between words."""

from __future__ import annotations

from typing import Any

from failback.analytics.dashboard.http.rendering import breakable, plain_number
from failback.analytics.dashboard.views.predicting import answer, presets


def pair(**row: Any) -> dict[str, Any]:
    group = {"group": "billing", "rate": 250.5, "queues": 4, "members": 2, "lag": 1_234_567} | row
    return {
        "broker": "demo-0",
        "members": [
            {"role": "master", "address": "h:0"},
            {"role": "slave", "address": "h:1"},
            {"role": "unknown", "address": "h:2"},
        ],
        "groups": [group],
    }


def offered(*pairs: dict[str, Any]) -> list[dict[str, Any]]:
    clusters = [{"cluster": "default.demo", "name": "demo", "pairs": list(pairs)}]
    config = {"flushConsumerOffsetInterval": "1000", "brokerName": "demo-0", "rate": "9"}
    return presets(clusters, {"h:0": config})


def test_a_live_group_gives_its_load_and_its_brokers_settings() -> None:
    (found,) = offered(pair())
    assert found["value"] == "default.demo/demo-0/billing"
    assert found["words"] == "billing on demo-0 of demo"
    assert found["settings"] == {
        "flushConsumerOffsetInterval": "1000", "slavesPerPair": "2",
        "rate": "250.5", "queues": "4", "members": "2", "backlog": "1234567",
    }  # fmt: skip
    settings = answer("handover", found["settings"])["settings"]
    assert (settings["rate"], settings["flushConsumerOffsetInterval"]) == (250.5, 1000)


def test_a_group_that_consumes_nothing_or_is_not_known_is_no_preset() -> None:
    assert offered(pair(rate=0.0), pair(rate=None)) == []
    (found,) = offered(pair(members=None, lag=None))
    assert {"members", "backlog"}.isdisjoint(found["settings"])


def test_a_key_may_be_broken_between_its_words_only() -> None:
    text = str(breakable("failbackGuardReturnedOffsets"))
    assert "failback<wbr>Guard<wbr>Returned<wbr>Offsets" in text
    assert "&lt;b&gt;" in breakable("<b>")


def test_a_number_of_a_field_has_no_needless_decimals() -> None:
    assert [plain_number(each) for each in (60.0, 0.5, 30_000_000, None)] == [
        "60", "0.5", "30000000", "",
    ]  # fmt: skip
