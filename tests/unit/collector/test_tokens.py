"""The token file: what it may say, and who may do what."""

from pathlib import Path

import pytest

from failback.analytics.web.tokens import (
    TokenFile,
    check_scope,
    digest_of,
    find_token,
    new_token,
    read_tokens,
)
from failback.protocol.errors import ConfigError


def line(token: str, scopes: str) -> str:
    return f"{digest_of(token)} {scopes} someone  # a comment\n"


def test_a_token_is_found_by_its_hash_alone() -> None:
    first, second = new_token(), new_token()
    text = "# tokens\n\n" + line(first, "read") + line(second, "ingest:r1,ingest:r2")
    entries = read_tokens(text, "tokens")
    assert first not in text
    found = find_token(entries, second)
    assert found is not None
    assert found.scopes == {"ingest:r1", "ingest:r2"}
    assert find_token(entries, new_token()) is None
    assert find_token(entries, "") is None
    assert find_token(entries, digest_of(first)) is None


@pytest.mark.parametrize(
    ("scopes", "run", "reads", "reads_run", "ingests"),
    [
        ("read", "r1", True, True, False),
        ("ingest:r1", "r1", False, True, True),
        ("ingest:r1", "r2", False, False, False),
        ("ingest:*", "r2", False, True, True),
        ("ingest:*,read", "r2", True, True, True),
    ],
)
def test_scopes(scopes: str, run: str, reads: bool, reads_run: bool, ingests: bool) -> None:
    token = new_token()
    entry = find_token(read_tokens(line(token, scopes), "tokens"), token)
    assert entry is not None
    assert (entry.may_read(), entry.may_read(run), entry.may_ingest(run)) == (
        reads, reads_run, ingests,
    )  # fmt: skip


@pytest.mark.parametrize("scope", ["", "write", "ingest:", "ingest:../x", "ingest:a..b", "READ"])
def test_unknown_scopes_are_refused(scope: str) -> None:
    with pytest.raises(ConfigError, match="read, ingest:RUN or ingest:"):
        check_scope(scope)


def test_a_bad_line_is_named() -> None:
    with pytest.raises(ConfigError, match="line 2"):
        read_tokens(line("a", "read") + "plain-token read me\n", "tokens")


def test_a_changed_file_is_read_again_and_a_bad_change_is_not(tmp_path: Path) -> None:
    path, first, second = tmp_path / "tokens", new_token(), new_token()
    path.write_text(line(first, "read"))
    tokens = TokenFile(path)
    assert tokens.find(f"Bearer {first}") is not None
    assert tokens.find(f"Basic {first}") is None
    assert tokens.find(None) is None
    path.write_text(line(first, "read") + line(second, "ingest:*"))
    assert tokens.find(f"bearer {second}") is not None
    path.write_text("nonsense\n")
    assert tokens.find(f"Bearer {second}") is not None
    path.write_text(line(second, "read"))
    assert tokens.find(f"Bearer {first}") is None


def test_no_file_no_collector(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file or folder"):
        TokenFile(tmp_path / "absent")
