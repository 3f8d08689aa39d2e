"""The file with an access key: what is read, what is refused, and when it is read again."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from failback.client.remoting.guarded import access
from failback.client.remoting.guarded.access import KeyFile, read_key_file
from failback.client.remoting.guarded.signing import AccessKey
from failback.protocol.errors import ConfigError

SECRET = "s3cret-value"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tools.yml"


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("accessKey: ops\nsecretKey: 12345678\n", AccessKey("ops", "12345678")),
        ("# its\r\naccessKey: 'ops'\r\nsecretKey: \"a b#c\" # its\r\n", AccessKey("ops", "a b#c")),
        ("---\naccessKey: ops # who\nsecretKey: a#b\nother: 1\n", AccessKey("ops", "a#b")),
        ("AccessKey=ops\nSecretKey=a#b=c\nSecurityToken=t\n", AccessKey("ops", "a#b=c", "t")),
        ("\ufeffaccessKey: ops\nsecretKey: ключ\nsecurityToken: t", AccessKey("ops", "ключ", "t")),
    ],
)  # fmt: skip
def test_both_forms_of_apache_are_read(file: Path, text: str, key: AccessKey) -> None:
    file.write_text(text, encoding="utf-8")
    assert read_key_file(file) == key


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "accessKey: is missing"),
        (f"secretKey: {SECRET}", "accessKey: is missing"),
        ("accessKey: ops\nsecretKey:\n", "secretKey: is missing"),
        (f"accessKey: ops\n{SECRET}\n", "tools.yml:2: access key: the line is no NAME: VALUE"),
        (f"accounts:\n- accessKey: ops\n  secretKey: {SECRET}\n", "tools.yml:1: .* accounts"),
        (f"- accessKey: ops\n  secretKey: {SECRET}\n", "tools.yml:1: .* is no NAME"),
    ],
)
def test_another_file_is_refused_by_its_line_and_never_quoted(
    file: Path, text: str, problem: str
) -> None:
    file.write_text(text)
    with pytest.raises(ConfigError, match=problem) as refused:
        read_key_file(file)
    assert SECRET not in str(refused.value)


def test_a_file_that_cannot_be_read_is_named_with_its_option(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"_KEY_FILE: .*tools.yml cannot be read: no such file"):
        read_key_file(file, "FAILBACK_ACCESS_KEY_FILE")
    file.write_bytes(b"accessKey: \xff\n")
    with pytest.raises(ConfigError, match="is not UTF-8"):
        read_key_file(file)
    file.unlink()
    file.mkdir()
    with pytest.raises(ConfigError, match="is a folder"):
        read_key_file(file)


def test_a_file_that_changed_is_read_again_and_a_damaged_one_is_not_taken(
    file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(access, "LOOK_SECONDS", 0.0)
    file.write_text("accessKey: ops\nsecretKey: old-secret\n")
    kept = KeyFile(file)
    assert kept.key.secret_key == "old-secret"
    file.write_text("accessKey: ops\nsecretKey: newer-secret\n")
    assert kept.key.secret_key == "newer-secret"
    with caplog.at_level(logging.WARNING):
        file.write_text("accessKey: ops\n")
        assert kept.key.secret_key == "newer-secret"
        file.unlink()
        assert kept.key.secret_key == "newer-secret"
    assert "stays in use" in caplog.text
    assert "secret-" not in caplog.text
    assert "newer" not in caplog.text
