"""`failback tools install-conf`: variables put in, a whole file or none."""

from __future__ import annotations

from pathlib import Path

import pytest

from failback.cli.container.install_conf import UnknownVariable, fill_in, install, main

POD = {"POD_IP": "10.0.0.7", "HOME": "/home/rocketmq", "PATH": "/bin"}


def test_the_pod_s_variables_are_put_in() -> None:
    text = "brokerIP1=${POD_IP}\nkvConfigPath=${HOME}/conf/kvConfig.json\nprice=$5 {x}\n"
    assert fill_in(text, POD) == (
        "brokerIP1=10.0.0.7\nkvConfigPath=/home/rocketmq/conf/kvConfig.json\nprice=$5 {x}\n"
    )


@pytest.mark.parametrize("name", ["POD_NAME", "PATH", "NOPE"])
def test_a_variable_without_a_value_is_refused(name: str) -> None:
    with pytest.raises(UnknownVariable, match=rf"\$\{{{name}\}} has no value in this pod"):
        fill_in(f"a=${{{name}}}", POD)


def test_the_file_appears_whole_and_replaces_an_old_one(tmp_path: Path) -> None:
    source, target = tmp_path / "in", tmp_path / "conf" / "broker.conf"
    source.write_text("a=${POD_IP}\n")
    target.parent.mkdir()
    target.write_text("old")
    install(source, target, POD)
    assert target.read_text() == "a=10.0.0.7\n"
    assert list(target.parent.iterdir()) == [target]


def test_a_bad_file_changes_nothing_and_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    source.write_text("a=${NOPE}\n")
    target.write_text("old")
    assert main(["--from", str(source), "--to", str(target)]) == 2
    assert target.read_text() == "old"
    told = capsys.readouterr().err
    assert told == f"install-conf: {source}: ${{NOPE}} has no value in this pod\n"
    assert main(["--from", str(tmp_path / "none"), "--to", str(target)]) == 2
