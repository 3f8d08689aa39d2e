"""namesrv.conf and kvConfig.json: what is read, kept, and refused with which sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from failback.namesrv.__main__ import main
from failback.namesrv.config import NamesrvConfig
from failback.namesrv.kv_config import KVConfigManager
from failback.protocol.errors import ConfigError


def write(folder: Path, text: str) -> Path:
    file = folder / "namesrv.conf"
    file.write_text(text)
    return file


def test_defaults() -> None:
    config = NamesrvConfig({})
    assert (config.listen_port, config.http_port, config.time_scale) == (9876, 0, 1.0)
    assert config.kv_config_path == Path.home() / "namesrv" / "kvConfig.json"
    assert not config.order_message_enable


def test_a_java_properties_file_is_read_and_unknown_keys_are_kept(tmp_path: Path) -> None:
    file = write(tmp_path, "# comment\nlistenPort : 19876\nbindAddress=127.0.0.1\nours=a\\\n  b\n")
    config = NamesrvConfig.from_file(file)
    assert (config.listen_port, config.bind_address) == (19876, "127.0.0.1")
    assert config.http_address == "127.0.0.1"
    assert "ours=ab\n" in config.to_text()
    assert f"configStorePath={file}\n" in config.to_text()


def test_what_was_written_reads_back(tmp_path: Path) -> None:
    config = NamesrvConfig({"listenPort": "1", "a b": "c=é"})
    file = write(tmp_path, config.to_file().decode())
    assert "a b=c=é\n" in NamesrvConfig.from_file(file).to_text()
    assert NamesrvConfig.from_file(file).listen_port == 1


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("listenPort=x", 'listenPort: "x" is no number from 0 to 65535'),
        ("listenPort=70000", 'listenPort: "70000" is no number from 0 to 65535'),
        ("failbackHttpPort=-1", 'failbackHttpPort: "-1" is no number from 0 to 65535'),
        ("failbackTimeScale=0", 'failbackTimeScale: "0" is no number above 0'),
        ("failbackTimeScale=nan", 'failbackTimeScale: "nan" is no number above 0'),
        ("orderMessageEnable=yes", 'orderMessageEnable: "yes" is neither true nor false'),
    ],
)
def test_a_bad_value_names_file_and_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, problem: str
) -> None:
    file = write(tmp_path, line)
    with pytest.raises(ConfigError):
        NamesrvConfig.from_file(file)
    assert main(["-c", str(file)]) == 2
    assert capsys.readouterr().err == f"failback namesrv: {file}:1: {problem}\n"


def test_a_missing_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-c", str(tmp_path / "nope.conf")]) == 2
    assert "nope.conf" in capsys.readouterr().err


def test_settings_can_be_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-c", str(write(tmp_path, "listenPort=7")), "-p"]) == 0
    assert "listenPort=7\n" in capsys.readouterr().out


@pytest.mark.parametrize("content", ["{", "[]", '{"configTable":{"ns":1}}', "\x00"])
def test_a_damaged_key_value_file_is_named_and_kept(tmp_path: Path, content: str) -> None:
    file = tmp_path / "kvConfig.json"
    file.write_text(content)
    with pytest.raises(ConfigError, match=r"kvConfig\.json"):
        KVConfigManager(file).load()
    assert file.read_text() == content


def test_an_empty_key_value_file_is_an_empty_table(tmp_path: Path) -> None:
    file = tmp_path / "kvConfig.json"
    file.write_text("")
    table = KVConfigManager(file)
    table.load()
    assert table.namespace("ns") is None


def test_the_key_value_file_is_the_one_java_reads(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "kvConfig.json"
    table = KVConfigManager(file)
    table.put("ns", "k", "v")
    assert file.read_text() == '{\n\t"configTable":{\n\t\t"ns":{\n\t\t\t"k":"v"\n\t\t}\n\t}\n}'
    assert [path.name for path in file.parent.iterdir()] == ["kvConfig.json"]
