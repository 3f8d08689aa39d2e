"""The plots' script: pinned by its hash, and said in one line where it cannot be had."""

from __future__ import annotations

import base64
import hashlib
import io
import tarfile
from pathlib import Path

import plotly.offline
import pytest
from tools import setup_plotly

from failback.analytics.report.page import plotly_bundle


def archive(script: bytes = b"var Plotly = {};") -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w:gz") as packed:
        for name in setup_plotly.FILES:
            member = tarfile.TarInfo(name)
            member.size = len(script)
            packed.addfile(member, io.BytesIO(script))
    return sink.getvalue()


def test_what_has_the_pinned_hash_is_kept_and_not_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, asked = archive(), [b""]
    digest = base64.b64encode(hashlib.sha512(content).digest()).decode()
    monkeypatch.setattr(setup_plotly, "INTEGRITY", digest)
    monkeypatch.setenv("npm_config_registry", "http://mirror")
    monkeypatch.setattr(setup_plotly, "_from_registry", lambda _registry: asked.pop())
    asked.append(content)
    for _ in range(2):
        assert setup_plotly.fetch(tmp_path / "page").read_bytes() == b"var Plotly = {};"
    assert asked == [b""]
    names = sorted(path.name for path in (tmp_path / "page").iterdir())
    assert names == ["LICENSE", "plotly-basic.min.js", "version"]


def test_another_content_is_refused_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("npm_config_registry", "http://mirror")
    monkeypatch.setattr(setup_plotly, "_from_registry", lambda _registry: archive())
    with pytest.raises(setup_plotly.CannotFetch, match="another hash"):
        setup_plotly.fetch(tmp_path / "page")
    assert not (tmp_path / "page").exists()


@pytest.mark.parametrize(
    ("named", "npm", "asked"),
    [
        ("", None, ["there is no npm, and npm_config_registry names no registry"]),
        ("", "npm", ["npm"]),
        ("http://mirror", None, ["http://mirror"]),
        ("http://mirror", "npm", ["http://mirror", "npm"]),
    ],
)
def test_registries_are_asked_until_one_answers_and_all_are_named_where_none_does(
    named: str, npm: str | None, asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(where: str) -> bytes:
        raise setup_plotly.CannotFetch(where)

    monkeypatch.setenv("npm_config_registry", named)
    monkeypatch.setattr(setup_plotly, "_from_registry", away)
    monkeypatch.setattr(setup_plotly, "_from_npm", away)
    with pytest.raises(setup_plotly.CannotFetch) as refused:
        setup_plotly.fetch(tmp_path / "page", npm=npm)
    assert str(refused.value) == "; ".join(asked)


def test_without_a_network_set_up_goes_on_and_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:1")
    monkeypatch.setattr("shutil.which", lambda _name: None)
    monkeypatch.setattr(setup_plotly.fetch, "__defaults__", (tmp_path / "page",))
    monkeypatch.setattr("sys.argv", ["setup_plotly.py"])
    assert setup_plotly.main() == 0
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "127.0.0.1:1" in said
    assert "python tools/setup_plotly.py" in said
    monkeypatch.setattr("sys.argv", ["setup_plotly.py", "--require"])
    assert setup_plotly.main() == 1


def test_the_bundle_is_of_the_version_that_the_package_draws_for() -> None:
    ours, theirs = setup_plotly.VERSION, plotly.offline.get_plotlyjs_version()
    assert ours.split(".")[:2] == theirs.split(".")[:2]


def test_a_page_has_a_script_with_or_without_the_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plotly_bundle.script.cache_clear()
    monkeypatch.setattr(plotly_bundle, "_fetched", lambda: tmp_path / "nowhere.js")
    assert plotly_bundle.script() == plotly.offline.get_plotlyjs()
    plotly_bundle.script.cache_clear()
