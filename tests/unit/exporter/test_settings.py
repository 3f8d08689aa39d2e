"""What the exporter refuses, in one line that names the option."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from failback.analytics.exporter.server import ExporterSettings, offset_file
from failback.protocol.errors import ConfigError


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
