"""Run folders and consume logs that somebody damaged, or that hold something else altogether.

Whatever lies there, a command returns, ends with a code from 0 to 3, and says which file and field
it cannot use.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
import pytest

from failback.analytics.dashboard.serve import make_app
from failback.analytics.dashboard.settings import DashboardSettings
from failback.analytics.dashboard.sources.live_run import LiveRun
from failback.analytics.dashboard.sources.runs import RunIndex
from failback.analytics.errors import ReportInputError
from failback.analytics.exporter.runs import RunWatch
from failback.analytics.observe.canary.ledger import Ledger
from failback.analytics.observe.lake import bring_up
from failback.analytics.report import make_report
from failback.cli.__main__ import main
from failback.cli.shared.errors import explain
from failback.protocol.errors import ConfigError
from tests.support.analytics.cases import c2
from tests.support.analytics.collector_lab import write_log
from tests.support.analytics.damage import FILES, VALUES, deadline, fields_of, replaced
from tests.support.common.crossing import every_value
from tests.support.dashboard.asgi import ask as ask_app
from tests.support.observe.folders import opened, written
from tests.support.observe.outages import at_work, come_back, serve

pytestmark = pytest.mark.foreign

Capture = pytest.CaptureFixture[str]
OBSERVED_FILES: Final = (
    *("run.json", "looks.jsonl", "canary.json", "lake.json", "lock", "closed.json"),
    *("manifest.json", "report", "trace", "trace/source.json", "trace/clock.json"),
)
PRESENT: Final = [each for each in FILES if each != "missing"]
SOME: Final = 6
"""Of the fields of a document, each value is put into so many."""
R: Final = random.Random(34)


@pytest.fixture(autouse=True)
def _without_html(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page has its own tests; drawing it here would only take time."""
    monkeypatch.setattr(make_report, "_html_can_be_made", lambda: False)


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run folder of an observation; copy it."""
    story = at_work()
    serve(story, 1500)
    come_back(story, 900)
    run = written(story, tmp_path_factory.mktemp("observed") / "run", limits={"max_rto": "900.0"})
    (run / "trace").mkdir()
    (run / "trace" / "clock.json").write_text('{"observer_ahead_ms": 3}')
    Ledger.begin(run, "run").name("bench/broker-a")
    bring_up(run)
    return run


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run folder of an experiment; copy it."""
    built, _ = c2()
    return built.write(tmp_path_factory.mktemp("experiment") / "run")


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of two processes' consume logs; copy it."""
    folder = tmp_path_factory.mktemp("logs") / "logs"
    for number in (1, 2):
        write_log(folder / str(number), proc_no=number, segment_bytes=1 << 20)
    return folder


def some(fields: Iterable[Any]) -> list[Any]:
    """A few fields, others for each value that is tried."""
    found = list(fields)
    return R.sample(found, min(SOME, len(found)))


def copied(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "run"))


def ask(capsys: Capture, *words: str, codes: tuple[int, ...] = (0, 1, 2, 3)) -> tuple[int, str]:
    """The code of a command and what it said; no sentence may be one of the program's own."""
    with deadline():
        code = main(list(words))
    told = capsys.readouterr()
    assert code in codes, told.err
    for inside in ("internal error", "Traceback", "[Errno"):
        assert inside not in told.err + told.out, told
    if code == 2:
        assert told.err.startswith("error: ")
        assert told.err.count("\n") == 1, told.err
        assert len(told.err) < 500
    return code, told.err + told.out


def report_of(run: Path, capsys: Capture) -> tuple[int, str]:
    code, said = ask(capsys, "report", str(run), "--engine", "local")
    if code == 2:
        assert str(run) in said
    return code, said


@pytest.mark.parametrize(("kind", "name"), every_value(FILES, OBSERVED_FILES, times=2))
def test_a_file_of_an_observation(
    kind: str, name: str, observed: Path, tmp_path: Path, capsys: Capture
) -> None:
    run = copied(observed, tmp_path)
    path = run / name
    for each in sorted(path.rglob("*"), reverse=True) if path.is_dir() else ():
        each.unlink()
    if path.is_dir():
        path.rmdir()
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_text("{}" + " " * 60)
    FILES[kind](path)
    code, said = report_of(run, capsys)
    if name in ("run.json", "looks.jsonl") and kind != "cut":
        assert code in (2, 3), "such a run is never taken as seen"
    if name == "looks.jsonl" and kind != "cut":
        assert "looks.jsonl" in said
    for words in (["runs", "list", "--runs", str(tmp_path)], ["predict", str(run)]):
        ask(capsys, *words)


@pytest.mark.parametrize("kind", FILES)
def test_the_lake_of_an_observation(
    kind: str, observed: Path, tmp_path: Path, capsys: Capture
) -> None:
    run = copied(observed, tmp_path)
    shutil.rmtree(run / "lake")
    (run / "lake").write_text(" " * 60)
    FILES[kind](run / "lake")
    code, said = report_of(run, capsys)
    if kind not in ("missing", "folder"):
        assert code == 2
        assert str(run / "lake") in said


def with_deliveries(whole: Path, tmp_path: Path) -> tuple[Path, Path]:
    """A copy whose files nobody has hashed, and one with deliveries."""
    run = copied(whole, tmp_path)
    (run / "manifest.json").unlink()
    return run, next(run.glob("lake/table=deliver/**/*.parquet"))


def ask_lake(run: Path, capsys: Capture) -> dict[str, tuple[int, str]]:
    """What the commands that read a lake say of it; the one that merges files is the last."""
    named, lake = json.loads((run / "run.json").read_text())["run"], str(run / "lake")
    count = "SELECT count(*) FROM deliver"
    commands = {
        "report": ("report", str(run), "--engine", "local"),
        "show": ("lake", "show", lake),
        "paths": ("lake", "paths", str(run)),
        "query": ("lake", "query", lake, count),
        "query of one": ("lake", "query", lake, count, "--run", named),
        "fsck": ("lake", "fsck", lake),
        "compact": ("lake", "compact", lake, "--also-open", "--run", named),
    }
    return {name: ask(capsys, *words) for name, words in commands.items()}


@pytest.mark.parametrize(("kind", "beside"), every_value(PRESENT, [False, True]))
def test_a_file_of_a_lake(
    kind: str, beside: bool, experiment: Path, tmp_path: Path, capsys: Capture
) -> None:
    """One of those that the run has, or one more."""
    run, path = with_deliveries(experiment, tmp_path)
    if beside:
        path = Path(shutil.copy(path, path.with_name("zz.parquet")))
    FILES[kind](path)
    said = ask_lake(run, capsys)
    names_it = {name for name, (_, words) in said.items() if path.name in words}
    assert names_it >= {"report", "paths", "query", "query of one", "fsck"}, said
    assert said["report"][0] == 3
    assert said["query of one"][0] == 1
    assert said["query"][0] in (1, 2)


SAYS_OF_ITSELF: Final = [
    *(b"{", b"[]", b"7", b'"a"', b"{}", b"\xff", b"[" * 100_000, b'{"proc_no": NaN}'),
    *(b"null", b'{"run": 1}'),
]


@pytest.mark.parametrize(
    ("key", "value"), every_value(["failback.segment", "failback.segments"], SAYS_OF_ITSELF)
)
def test_what_a_file_of_a_lake_says_of_itself(
    key: str, value: bytes, experiment: Path, tmp_path: Path, capsys: Capture
) -> None:
    run, path = with_deliveries(experiment, tmp_path)
    rows = pq.read_table(path, partitioning=None)
    pq.write_table(rows.replace_schema_metadata({key: value}), path)
    code, _ = ask_lake(run, capsys)["report"]
    assert code == 3 or (key, value) == ("failback.segments", b"[]")


@pytest.mark.few(5, 5)
@pytest.mark.parametrize("value", VALUES)
def test_a_field_of_an_observation(
    value: str, observed: Path, tmp_path: Path, capsys: Capture
) -> None:
    run = copied(observed, tmp_path)
    whole = {name: (run / name).read_text() for name in ("run.json", "canary.json")}
    for name, text in whole.items():
        document = json.loads(text)
        for at in some(fields_of(document, 3)):
            (run / name).write_text(json.dumps(replaced(document, at, VALUES[value])))
            code, said = report_of(run, capsys)
            if value in ("nan", "infinite", "half"):
                assert code == 2, (name, at)
                assert str(run / name) in said
        (run / name).write_text(text)


@pytest.mark.few(5, 5)
@pytest.mark.parametrize("value", VALUES)
def test_a_field_of_a_look(value: str, observed: Path, tmp_path: Path, capsys: Capture) -> None:
    run = copied(observed, tmp_path)
    lines = (run / "looks.jsonl").read_text().splitlines()
    place = len(lines) // 2
    document = json.loads(lines[place])
    for at in some(fields_of(document, 7)):
        changed = json.dumps(replaced(document, at, VALUES[value]))
        (run / "looks.jsonl").write_text("\n".join([*lines[:place], changed, *lines[place + 1 :]]))
        code, said = report_of(run, capsys)
        if value in ("huge", "beyond", "nan", "infinite") and at != ("first",):
            assert code == 3, at
            assert f"looks.jsonl: line {place + 1} cannot be read" in said, at


@pytest.mark.few(5, 5)
@pytest.mark.parametrize("value", VALUES)
def test_a_field_of_an_experiment(
    value: str, experiment: Path, tmp_path: Path, capsys: Capture
) -> None:
    run = copied(experiment, tmp_path)
    whole = {name: (run / name).read_text() for name in ("run.json", "closed.json")}
    for name, text in whole.items():
        document = json.loads(text)
        for at in some(fields_of(document, 2)):
            (run / name).write_text(json.dumps(replaced(document, at, VALUES[value])))
            report_of(run, capsys)
        (run / name).write_text(text)


@pytest.mark.parametrize("kind", FILES)
def test_one_log_of_several(kind: str, logs: Path, tmp_path: Path, capsys: Capture) -> None:
    folder = copied(logs, tmp_path)
    bad = folder / "1" / "extra.fblog"
    bad.write_bytes(next((folder / "1").glob("*.fblog")).read_bytes())
    FILES[kind](bad)
    code, _ = report_of(folder, capsys)
    assert code in (0, 3), "the others are counted"
    if kind not in ("missing", "cut"):
        assert code == 3
    assert "delivered" in (folder / "report" / "report.json").read_text()


@pytest.mark.parametrize("kind", FILES)
def test_the_only_log(kind: str, logs: Path, tmp_path: Path, capsys: Capture) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    bad = folder / "only.fblog"
    bad.write_bytes(next((logs / "1").glob("*.fblog")).read_bytes())
    FILES[kind](bad)
    code, said = report_of(folder, capsys)
    if kind != "cut":
        assert code == 2
        assert str(folder) in said


def test_a_log_itself_is_no_run(logs: Path, capsys: Capture) -> None:
    log = next((logs / "1").glob("*.fblog"))
    code, said = ask(capsys, "report", str(log))
    assert code == 2
    assert f"{log} is a file" in said
    assert str(log.parent) in said


def _flipped(path: Path, r: random.Random) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(r.randint(1, 4)):
        at = r.randrange(len(content))
        content[at : at + r.randint(0, 3)] = r.randbytes(r.randint(0, 3))
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["run.json", "looks.jsonl", "canary.json"])
def test_bytes_that_changed(name: str, observed: Path, tmp_path: Path, capsys: Capture) -> None:
    _tried(partial(copied, observed, tmp_path), name, capsys)


def test_bytes_of_a_log_that_changed(logs: Path, tmp_path: Path, capsys: Capture) -> None:
    name = next(logs.glob("1/*.fblog")).relative_to(logs).as_posix()
    _tried(partial(copied, logs, tmp_path), name, capsys)


def _tried(make: Callable[[], Path], name: str, capsys: Capture) -> None:
    run = make()
    whole = (run / name).read_bytes()
    for _ in range(10):
        (run / name).write_bytes(whole)
        _flipped(run / name, R)
        report_of(run, capsys)


@pytest.mark.parametrize("kind", FILES)
def test_an_observer_that_goes_on(kind: str, observed: Path, tmp_path: Path) -> None:
    """It refuses what it cannot read with a sentence, and else goes on; it never waits."""
    for name in ("run.json", "looks.jsonl", "lock", "canary.json"):
        run = copied(observed, tmp_path / name)
        FILES[kind](run / name)
        with deadline():
            try:
                opened(run, limits={"max_rto": "900.0"}).close()
                Ledger.read(run)
            except (ReportInputError, ConfigError, OSError) as error:
                said, _ = explain(error)
                assert str(run) in said, (name, said)
                assert "[Errno" not in said
                assert "\n" not in said
            else:
                assert name != "run.json" or kind in ("missing", "cut")


@pytest.mark.parametrize("kind", FILES)
def test_runs_that_are_listed(kind: str, observed: Path, tmp_path: Path, capsys: Capture) -> None:
    """A run that cannot be read stands in the list beside the others, and says why."""
    shutil.copytree(observed, tmp_path / "runs" / "whole")
    for name in ("run.json", "looks.jsonl", "closed.json", "lock", "report/report.json"):
        run = shutil.copytree(observed, tmp_path / "runs" / name.replace("/", "-"))
        document = json.loads((run / "run.json").read_text())
        (run / "run.json").write_text(json.dumps({**document, "run": run.name}))
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).touch()
        FILES[kind](run / name)
    with deadline():
        found = {each.folder: each for each in RunIndex(tmp_path / "runs").scan()}
    assert found["whole"].state == "closed"
    if kind not in ("missing", "cut"):
        bad = found["run.json"]
        assert bad.state == "unreadable"
        assert "run.json" in bad.sentence
        app, _ = make_app(DashboardSettings(tmp_path / "runs"), [], lambda _: None)
        poller = app.state.shared.poller
        with deadline():
            asyncio.run(poller.look_at_runs())
            asyncio.run(poller.look_at_live())
        status, page = ask_app(app, "/runs/run.json", accept="text/html")
        assert status == 200
        assert "It cannot be read" in page
        assert ask_app(app, "/runs", accept="text/html")[0] == 200
    ask(capsys, "runs", "list", "--runs", str(tmp_path / "runs"))
    if "run.json" in found:
        ask(capsys, "runs", "show", "run.json", "--runs", str(tmp_path / "runs"))
    with deadline():
        list(RunWatch(tmp_path / "runs").collect())


@pytest.mark.parametrize(
    ("kind", "place"),
    every_value(PRESENT, ["report/figures-data.parquet", "lake/table=deliver/**/*.parquet"]),
)
def test_pages_of_rows_that_cannot_be_read(
    kind: str, place: str, experiment: Path, tmp_path: Path, capsys: Capture
) -> None:
    run = Path(shutil.copytree(experiment, tmp_path / "runs" / "kept"))
    (run / "manifest.json").unlink()
    assert report_of(run, capsys)[0] in (0, 1)
    path = next(run.glob(place))
    FILES[kind](path)
    app, _ = make_app(DashboardSettings(tmp_path / "runs"), [], lambda _: None)
    shared = app.state.shared
    asyncio.run(shared.poller.look_at_runs())
    (entry,) = shared.poller.index.scan()
    message = "figures" if place.startswith("report") else "messages/00000000-00000000001"
    for page in ("", "/queues/0"):
        with deadline():
            status, _ = ask_app(app, f"/runs/{entry.run}{page}", accept="text/html")
        assert status in (200, 404, 503)
    with deadline():
        status, said = ask_app(app, f"/api/v1/runs/{entry.run}/{message}")
    is_there = path.exists() or not place.startswith("report")
    assert (path.name in said) == is_there, (status, said)
    assert "[Errno" not in said


@pytest.mark.parametrize("kind", FILES)
def test_what_a_live_run_reads(kind: str, experiment: Path, tmp_path: Path, logs: Path) -> None:
    run = copied(experiment, tmp_path)
    (run / "hot").mkdir(exist_ok=True)
    (run / "logs").mkdir(exist_ok=True)
    whole = next((logs / "1").glob("*.fblog")).read_bytes()
    (run / "hot" / "whole.fblog").write_bytes(whole)
    for name in ("hot/bad.fblog", "evidence.jsonl", "logs/harness.log"):
        (run / name).write_bytes(whole)
        FILES[kind](run / name)
    with deadline():
        live = LiveRun.open("run", run)
        live.look(0)
    assert live.counters.delivered >= 100
