"""What the shipper does with each answer of a collector."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event

import pytest

from failback.client.consumelog.reader import missing_ranges, read_head, read_hot
from failback.client.consumelog.upload.collector_client import (
    PROBLEM_PREFIX,
    Answer,
    CollectorAway,
    CollectorClient,
    read_token,
)
from failback.client.consumelog.upload.lake_files import arrow_table, lake_order, stream_bytes
from failback.client.consumelog.upload.segments import segments_of
from failback.client.consumelog.upload.upload import LONGEST_WAIT_SECONDS, REFUSED, UploadShipper
from failback.client.consumelog.writer import ConsumeLog
from failback.protocol.errors import ConfigError
from tests.support.clients.consumelog import begin

STORED = Answer(201)


def problem(status: int, name: str, retry: float | None = None) -> Answer:
    document = {"type": f"{PROBLEM_PREFIX}{name}", "status": status, "detail": name}
    return Answer(status, document, retry)


class FakeCollector(CollectorClient):
    """Answers uploads from a list, then with 201; keeps what it was sent."""

    def __init__(self, *answers: Answer | CollectorAway) -> None:
        super().__init__("http://127.0.0.1:1")
        self.answers = list(answers)
        self.sent: list[tuple[str, str]] = []
        self.has: dict[str, str] = {}
        self.asked = 0

    def send_segment(
        self, segment_id: str, body: bytes, sha256: str, backlog_bytes: int = 0
    ) -> Answer:
        assert hashlib.sha256(body).hexdigest() == sha256
        assert backlog_bytes > 0
        answer = self.answers.pop(0) if self.answers else STORED
        if isinstance(answer, CollectorAway):
            raise answer
        self.sent.append((segment_id, sha256))
        return answer

    def stored(self, run: str, proc: str) -> Answer:
        self.asked += 1
        listed = [{"id": name, "sha256": sha256} for name, sha256 in self.has.items()]
        return Answer(200, {"segments": listed})

    def close_run(self, run: str, last_seqs: Mapping[int, int]) -> Answer:
        return Answer(200)


def write(hot: Path, files: int = 2) -> list[Path]:
    """Finished files of one process, two tables in each."""
    with ConsumeLog(
        hot, run="r1", proc=b"p" * 16, proc_no=3, role="c", host="h", sync_seconds=0,
        segment_seconds=0.0,
    ) as log:  # fmt: skip
        for n in range(files):
            begin(log, n)
    return sorted(hot.glob("*.fblog"))


def test_a_file_is_deleted_once_its_segments_are_stored(tmp_path: Path) -> None:
    files = write(tmp_path)
    collector = FakeCollector()
    report = UploadShipper(tmp_path, collector).ship_all()
    assert (report.shipped, report.left, report.wait_seconds) == (tuple(files), 0, None)
    assert not list(tmp_path.glob("*.fblog"))
    assert [name for name, _ in collector.sent] == [
        f"r1/{'70' * 16}/{index:08d}/deliver" for index in range(2)
    ]
    assert collector.asked == 1


@pytest.mark.parametrize(
    ("answer", "wait"),
    [
        (problem(429, "busy", 7), (7, 7.6)),
        (problem(507, "store-full", 30), (30, 30.6)),
        (problem(401, "unauthenticated"), (0, 0.51)),
        (Answer(502), (0, 0.51)),
        (Answer(404), (0, 0.51)),
        (Answer(413, {"title": "a proxy's own"}), (0, 0.51)),
        (CollectorAway("no route"), (0, 0.51)),
        (problem(400, "hash-mismatch"), (0, 0.51)),
    ],
)
def test_what_may_pass_is_waited_for(
    tmp_path: Path, answer: Answer | CollectorAway, wait: tuple[float, float]
) -> None:
    files = write(tmp_path)
    collector = FakeCollector(answer)
    shipper = UploadShipper(tmp_path, collector)
    report = shipper.ship_all()
    assert (report.shipped, report.left) == ((), 2)
    assert report.wait_seconds is not None
    assert wait[0] <= report.wait_seconds <= wait[1]
    assert sorted(tmp_path.glob("*.fblog")) == files
    assert shipper.ship_all().shipped == tuple(files)


def test_waits_grow_to_a_bound_and_begin_again_after_a_success(tmp_path: Path) -> None:
    write(tmp_path)
    collector = FakeCollector(*[CollectorAway("away")] * 12)
    shipper = UploadShipper(tmp_path, collector)
    waits = [shipper.ship_all().wait_seconds or 0.0 for _ in range(12)]
    assert waits[0] <= 0.5
    assert LONGEST_WAIT_SECONDS / 2 <= waits[-1] <= LONGEST_WAIT_SECONDS
    assert shipper.ship_all().left == 0
    write(tmp_path)
    collector.answers = [CollectorAway("away")]
    assert (shipper.ship_all().wait_seconds or 99) <= 0.5


def test_what_the_collector_has_is_not_sent_again(tmp_path: Path) -> None:
    (first, _) = write(tmp_path)
    (segment,) = segments_of(read_hot(first))
    collector = FakeCollector()
    collector.has = {segment.segment_id: hashlib.sha256(stream_bytes(segment)).hexdigest()}
    assert len(UploadShipper(tmp_path, collector).ship_all().shipped) == 2
    assert [name for name, _ in collector.sent] == [segment.segment_id.replace("00000/", "00001/")]


def test_what_is_refused_for_good_is_set_aside_with_the_answer(tmp_path: Path) -> None:
    (first, second) = write(tmp_path)
    collector = FakeCollector(problem(409, "other-content"))
    report = UploadShipper(tmp_path, collector).ship_all()
    assert (report.refused, report.shipped) == ((first,), (second,))
    assert (tmp_path / REFUSED / first.name).exists()
    assert "other-content" in (tmp_path / REFUSED / f"{first.name}.json").read_text()


def test_a_file_that_is_still_written_is_left_alone(tmp_path: Path) -> None:
    with ConsumeLog(tmp_path, run="r1", proc_no=3, role="c", host="h", sync_seconds=0) as log:
        begin(log, 0)
        report = UploadShipper(tmp_path, FakeCollector()).ship_all()
        assert (report.held, report.left) == ((log.path,), 0)


def test_a_bad_file_is_named_once_and_stops_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = write(tmp_path)
    (tmp_path / "0.fblog").write_bytes(b"nothing of ours")
    shipper = UploadShipper(tmp_path, FakeCollector())
    report = shipper.ship_all()
    assert (report.bad, report.shipped) == ((tmp_path / "0.fblog",), tuple(files))
    assert shipper.ship_all().bad == (tmp_path / "0.fblog",)
    assert sum("head cannot be read" in record.message for record in caplog.records) == 1


def test_the_backlog_is_kept_for_prometheus(tmp_path: Path) -> None:
    files = write(tmp_path / "hot")
    textfile = tmp_path / "backlog.prom"
    collector = FakeCollector(CollectorAway("away"))
    shipper = UploadShipper(tmp_path / "hot", collector, textfile=textfile)
    shipper.ship_all()
    waiting = sum(path.stat().st_size for path in files)
    assert f'failback_shipper_backlog_bytes{{run="r1"}} {waiting}\n' in textfile.read_text()
    shipper.ship_all()
    assert "r1" not in textfile.read_text()


def test_run_ends_with_what_is_left(tmp_path: Path) -> None:
    write(tmp_path)
    stop = Event()
    stop.set()
    clock = iter(range(1000))
    now: Callable[[], float] = lambda: float(next(clock))  # noqa: E731
    away = FakeCollector(*[CollectorAway("away")] * 100)
    assert not UploadShipper(tmp_path, away).run(stop, linger_seconds=0.0, now=now)
    assert len(list(tmp_path.glob("*.fblog"))) == 2
    assert UploadShipper(tmp_path, FakeCollector()).run(stop, linger_seconds=0.0, now=now)
    assert not list(tmp_path.glob("*.fblog"))


def test_streams_are_equal_and_the_lake_is_ordered_by_queue_and_offset(tmp_path: Path) -> None:
    with ConsumeLog(tmp_path, run="r1", proc_no=3, role="c", host="h", sync_seconds=0) as log:
        for n, (broker, qid) in enumerate([("b", 1), ("a", 2), ("b", 0), ("a", 2)]):
            begin(log, 9 - n, broker=broker, qid=qid)
        path = log.path
    (segment,) = segments_of(read_hot(path))
    assert stream_bytes(segment) == stream_bytes(segment)
    rows = lake_order(arrow_table(segment)).select(["broker", "qid", "qoff"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        ("a", 2, 6), ("a", 2, 8), ("b", 0, 7), ("b", 1, 9),
    ]  # fmt: skip
    assert read_head(path) == read_hot(path).head
    assert missing_ranges(4, 4, [(1, 4)]) == []


@pytest.mark.parametrize("url", ["collector:8095", "ftp://host/", "http://"])
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="HOST:PORT"):
        CollectorClient(url)


def test_run_says_that_something_was_refused_although_nothing_waits(tmp_path: Path) -> None:
    write(tmp_path)
    stop = Event()
    stop.set()
    refusing = UploadShipper(tmp_path, FakeCollector(problem(409, "other-content")))
    assert not refusing.run(stop, linger_seconds=0.0, now=lambda: 0.0)


@pytest.mark.parametrize(
    ("content", "token"),
    [
        (b"abc-_.~+/123==", "abc-_.~+/123=="),
        (b"abc\n", "abc"),
        (b"\r\n  abc \r\n\n", "abc"),
        (b"added to tokens; give this to its user, it is stored nowhere:\nabc\n", "abc"),
    ],
)
def test_the_token_is_the_last_line_that_is_not_empty(
    tmp_path: Path, content: bytes, token: str
) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    assert read_token(file) == token


SECRET = "s3cr3tsecret"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (f"Bearer {SECRET}".encode(), "without blanks"),
        (f"{SECRET}\u00e9".encode(), "without blanks"),
        (f"{SECRET}\x00{SECRET}".encode(), "without blanks"),
        (b"\xff\xfe" + SECRET.encode(), "is no text"),
        (None, "cannot be read: No such file or directory"),
    ],
)
def test_a_file_without_a_token_is_named_and_nothing_of_it_is_shown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes | None, told: str
) -> None:
    file = tmp_path / "agents.token"
    if content is not None:
        file.write_bytes(content)
    client = CollectorClient("http://127.0.0.1:1", token_file=file)
    with pytest.raises(ConfigError, match=f"token file {file}: .*{told}"):
        client.check_token()
    write(tmp_path)
    assert UploadShipper(tmp_path, client).ship_all().left == 2
    assert told in caplog.text
    assert SECRET not in caplog.text
