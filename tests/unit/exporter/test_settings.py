"""What the exporter refuses, in one line that names the option."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from prometheus_client.core import Metric

from failback.analytics.exporter.server import Exporter
from failback.analytics.exporter.settings import ExporterSettings, offset_file
from failback.analytics.exporter.survey import BrokerAnswers, Survey
from failback.protocol.errors import ConfigError
from failback.protocol.metric_families import PERSIST_AGE


@pytest.mark.parametrize(
    ("changes", "option"),
    [
        ({"name_servers": ()}, "--namesrv"),
        ({"name_servers": ("nowhere",)}, "--namesrv"),
        ({"name_servers": ("host:99999",)}, "--namesrv"),
        ({"interval_seconds": 0}, "--interval"),
        ({"port": 70000}, "--port"),
        ({"runs": Path("/no/such/folder")}, "--runs"),
    ],
)
def test_bad_input_is_refused_with_its_option(changes: dict[str, Any], option: str) -> None:
    with pytest.raises(ConfigError, match=option):
        ExporterSettings(**{"name_servers": ("127.0.0.1:9876",), **changes})


def test_offset_files_are_named_by_member() -> None:
    assert offset_file("broker-a-0=/x/y.json") == (("broker-a", 0), Path("/x/y.json"))
    for text in ("broker-a=/x", "broker-a-0", "-0=/x", "broker-a-x=/y"):
        with pytest.raises(ConfigError, match="--offset-file"):
            offset_file(text)


def _masters_with_an_age(settings: ExporterSettings, *brokers: BrokerAnswers) -> set[str]:
    exporter = Exporter(settings)
    exporter.take(Survey(1.0, 1000.0, 0.1, {}, brokers))
    found: list[Metric] = [each for each in exporter.collect() if each.name == PERSIST_AGE.name]
    return {sample.labels["node_id"] for metric in found for sample in metric.samples}


def test_the_file_of_a_master_on_this_machine_needs_no_option(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "consumerOffset.json").write_text('{"offsetTable":{}}')
    config = {"storePathRootDir": str(tmp_path)}
    brokers = [
        BrokerAnswers("c", broker, number, address, True, {}, config, {})
        for broker, number, address in (
            ("here", 0, "127.0.0.1:1"),
            ("here", 1, "127.0.0.1:2"),
            ("elsewhere", 0, "192.0.2.1:1"),
        )
    ]
    settings = ExporterSettings(("127.0.0.1:9876",))
    assert _masters_with_an_age(settings, *brokers) == {"here-0"}
    named = ExporterSettings(
        ("127.0.0.1:9876",), offset_files={("here", 0): tmp_path / "another.json"}
    )
    assert _masters_with_an_age(named, *brokers) == set(), "the one that was named counts"
