"""An object store that is away, refuses or has no such bucket: exit code 2, said in one line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from failback.analytics.jobs import reconsume
from failback.analytics.lake.store import open_store
from failback.cli.__main__ import main
from failback.cli.measure.lake import main as lake_main
from tests.support.analytics.s3_server import BUCKET, S3Server, s3_server
from tests.support.net.ports import free_port


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as found:
        yield found


@pytest.fixture
def s3(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return server


def away(patch: pytest.MonkeyPatch) -> str:
    patch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{free_port()}")
    return f"s3://{BUCKET}/lake"


def denied(patch: pytest.MonkeyPatch) -> str:
    patch.setenv("AWS_SECRET_ACCESS_KEY", "of-somebody-else")
    return f"s3://{BUCKET}/lake"


def without_bucket(_: pytest.MonkeyPatch) -> str:
    return "s3://nosuch/lake"


REFUSED = "ACCESS_DENIED|SIGNATURE_DOES_NOT_MATCH|403"
"""How a store says no depends on the request: an answer to HEAD has no body."""
PROBLEMS = [
    (away, "cannot reach http://127.0.0.1"),
    (denied, REFUSED),
    (without_bucket, "no bucket nosuch"),
]


@pytest.mark.parametrize(("make", "why"), PROBLEMS)
def test_every_command_that_reads_a_lake_says_which_and_why(
    make: Callable[[pytest.MonkeyPatch], str],
    why: str,
    s3: S3Server,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lake = make(monkeypatch)
    here = ["--out", str(tmp_path / "out")]
    for command, words in (
        (main, ["report", "--lake", lake, "--run", "r", *here]),
        (reconsume.main, ["--lake", lake, "--run", "r", *here]),
        (lake_main, ["compact", lake]),
    ):
        code = command(words)
        said = capsys.readouterr().err
        assert code == 2, said
        assert said.count("\n") == 1
        assert said.startswith(f"error: {lake}")
        assert re.search(why, said)


def test_a_store_that_refuses_what_is_written_names_the_object(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    denied(monkeypatch)
    store = open_store(f"s3://{BUCKET}/results")
    with pytest.raises(OSError, match=rf"s3://{BUCKET}/results/a/b: .*({REFUSED})"):
        store.write("a/b", b"content")
    with pytest.raises(OSError, match=rf"s3://{BUCKET}/results/a/b: "):
        store.read("a/b")
