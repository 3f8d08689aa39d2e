"""What the dashboard can start, and what it says where nothing can be started."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from failback.cli.servers.dashboard import startable
from failback.cli.shared.bundled import EXPERIMENTS
from failback.protocol.errors import ConfigError


def test_the_demo_and_every_bundled_experiment_can_be_started(tmp_path: Path) -> None:
    scenarios, _ = startable(tmp_path / "runs", tmp_path / "root")
    assert [each.name for each in scenarios] == ["demo", *EXPERIMENTS]
    for each in scenarios:
        assert each.faults
        assert each.arms
        assert "minute" in each.takes
        words = each.command_for({})
        assert list(words[:3]) == [sys.executable, "-m", "failback.cli"]
        assert str(tmp_path / "runs") in words


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("demo", "quick", "maybe"),
        ("demo", "rules", "--abort"),
        ("demo", "engine", ""),
        ("failback-demo", "seed", "; rm"),
        ("failback-demo", "time-scale", "quick"),
    ],
)
def test_an_option_that_is_wrong_is_named(
    name: str, option: str, value: str, tmp_path: Path
) -> None:
    scenarios, _ = startable(tmp_path, tmp_path)
    (found,) = [each for each in scenarios if each.name == name]
    with pytest.raises(ConfigError, match=f"^{option}: must be"):
        found.command_for({option: value})


def test_what_cannot_be_taken_together_is_refused_and_said_on_the_form(tmp_path: Path) -> None:
    scenarios, _ = startable(tmp_path, tmp_path)
    demo = scenarios[0]
    with pytest.raises(ConfigError, match="apache cannot be taken with quick=yes"):
        demo.command_for({"engine": "apache", "quick": "yes"})
    assert "--quick" not in demo.command_for({"engine": "apache", "quick": "no"})
    (apache,) = [each for each in demo.options["engine"].choices if each.value == "apache"]
    assert apache.not_with == ("quick", "yes")


def test_an_option_that_nobody_offers_is_refused(tmp_path: Path) -> None:
    scenarios, _ = startable(tmp_path, tmp_path)
    with pytest.raises(ConfigError, match=r"^speed: no such option"):
        scenarios[0].command_for({"speed": "2"})


def test_without_the_extra_the_rest_is_still_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "failback.chaos.run.abort_and_heal", None)
    scenarios, abort = startable(tmp_path, tmp_path)
    assert scenarios == []
    assert "no experiment can be started" in capsys.readouterr().err
    with pytest.raises(ConfigError):
        abort(tmp_path)
