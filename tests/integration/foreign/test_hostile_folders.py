"""A run folder that somebody sends is only data, for every command that takes one.

Each folder is a small real run with one hostile thing in it. Whatever a command says of it, it ends
in time with a documented exit code, runs no program, opens no connection, and leaves everything
outside of the folder as it was.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from failback.analytics.dashboard.serve import make_app
from failback.analytics.dashboard.settings import DashboardSettings
from failback.cli.__main__ import main
from tests.support.analytics.cases import c2
from tests.support.analytics.run_builder import write_manifest
from tests.support.chaos.hostile import kubeconfig
from tests.support.common.polling import SCALE
from tests.support.dashboard.asgi import ask
from tests.support.observe.folders import written
from tests.support.observe.outages import at_work, come_back, serve, take_over

pytestmark = pytest.mark.foreign

SECONDS: Final = int(60 * SCALE)
EXIT_CODES: Final = (0, 1, 2, 3, 4)
COMMANDS: Final = (
    "runs list {runs}",
    "runs show {run}",
    "report {run}",
    "lake fsck {run}",
    "lake query {run} SELECT_1",
    "explain-offset g T 0 --run {run}",
    "predict {run} --draws 100",
    "experiment heal {run}",
    "experiment abort {run}",
)
ACTS: Final = frozenset(
    {"subprocess.Popen", "os.exec", "os.system", "os.posix_spawn", "os.spawn", "socket.connect"}
)
"""Audit events of a command that acts on more than files."""
_seen: list[str] | None = None


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if _seen is not None and event in ACTS:
        _seen.append(f"{event} {arguments}")


sys.addaudithook(_note)


@contextmanager
def watched() -> Iterator[list[str]]:
    """Collect what a block does beside reading and writing files; end it when it hangs."""
    global _seen
    found: list[str] = []
    _seen = found

    def late(*_: object) -> None:
        raise TimeoutError(f"it did not end within {SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield found
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        _seen = None


# --- what may be in a folder ----------------------------------------------------------------------


def undo(run: Path, entry: object, **note: object) -> None:
    """Leave an entry of the undo ledger, and a note of where to act."""
    (run / "experiment.json").write_text("{}")
    (run / "target.json").write_text(json.dumps({"cluster": "orders", **note}))
    (run / "undo.jsonl").write_text(json.dumps(entry) + "\n")


RELEASE: Final = {"id": "u0001", "call": "release", "args": {"pod": "x"}, "fid": "f1", "t": [1, 1]}
Change = Callable[[Path, Path], object]
"""Makes a run folder hostile; its second argument is a folder outside."""


def replaced(name: str, content: bytes) -> Change:
    return lambda run, _: (run / name).write_bytes(content)


def in_run_json(**values: object) -> Change:
    def change(run: Path, _: Path) -> None:
        path = run / "run.json"
        path.write_text(json.dumps({**json.loads(path.read_bytes()), **values}))

    return change


def part_of(run: Path) -> Path:
    return next(path for path in sorted((run / "lake").rglob("*.parquet")) if path.is_file())


def linked(pick: Callable[[Path], Path], to: Callable[[Path], object]) -> Change:
    """Put a symbolic link in the place of what is there."""

    def change(run: Path, outside: Path) -> None:
        place = pick(run)
        if place.is_dir():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(str(to(outside)))

    return change


def a_fifo(pick: Callable[[Path], Path]) -> Change:
    def change(run: Path, _: Path) -> None:
        place = pick(run)
        place.unlink(missing_ok=True)
        os.mkfifo(place)

    return change


def a_bomb(run: Path, _: Path) -> None:
    """One value of 100 KB that a dictionary names 200,000 times: 20 GB when decoded."""
    path = part_of(run)
    names = pq.read_schema(path).names
    values = pa.DictionaryArray.from_arrays(pa.array([0] * 200_000, pa.int32()), ["x" * 100_000])
    table = pa.table(dict.fromkeys(names[:3], values))
    pq.write_table(table, path, store_schema=False, compression="zstd")


def a_listener(run: Path, outside: Path) -> None:
    with socket.socket(socket.AF_UNIX) as found:
        found.bind(str(outside / "s"))
    undo(run, RELEASE, kind="local", control_socket=str(outside / "s"))


ALIASES: Final = [
    "l0: &l0 [x, x, x, x, x, x, x, x, x]",
    *(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 10)),
]
"""Of 9^10 letters when it is read as it stands."""
FOLDERS: Final[dict[str, Change]] = {
    "a kubeconfig that runs a program": lambda run, outside: undo(
        run,
        RELEASE,
        kind="kube",
        namespace="shop",
        kubeconfig=str(kubeconfig(run / "kubeconfig", outside / "ran")),
    ),
    "a cluster of the reader's own kubeconfig": lambda run, _: undo(
        run, RELEASE, kind="kube", namespace="kube-system"
    ),
    "a control socket": a_listener,
    "a root": lambda run, outside: undo(run, RELEASE, kind="local", root=str(outside)),
    "an undo that writes a file": lambda run, outside: undo(
        run,
        {
            "id": "u0001",
            "call": "restore_files",
            "args": {"pod": "x", "files": {"../../../../outside/kept": str(run / "run.json")}},
            "fid": "f1",
            "t": [1, 1],
        },
        kind="local",
        root=str(outside),
    ),
    "an undo of a name that is none": lambda run, _: undo(run, {**RELEASE, "call": "__import__"}),
    "an undo that is a list": lambda run, _: undo(run, [RELEASE]),
    "an undo without a name": lambda run, _: undo(run, {"call": "release", "args": {}, "fid": "f"}),
    "an undo with numbers for names": lambda run, _: undo(run, {**RELEASE, "args": {"pod": [5]}}),
    "an undo ledger that is no JSON": replaced("undo.jsonl", b"\x00\x01 what is this\n"),
    "a run.json nested 100,000 deep": replaced("run.json", b"[" * 100_000),
    "a run.json of null": replaced("run.json", b"null"),
    "a run.json that is a pipe": a_fifo(lambda run: run / "run.json"),
    "a run.json from elsewhere": linked(lambda run: run / "run.json", lambda out: out / "secret"),
    "a run.json without an end": linked(lambda run: run / "run.json", lambda _: "/dev/zero"),
    "a closed.json of other types": replaced("closed.json", b'{"exits":[1],"gaps":{"a":null}}'),
    "an experiment of aliases": replaced("experiment.yaml", "\n".join(ALIASES).encode()),
    "a report that is elsewhere": linked(lambda run: run / "report", lambda out: out / "folder"),
    "a page that is elsewhere": linked(
        lambda run: run / "report" / "report.html", lambda out: out / "kept"
    ),
    "a lake that is elsewhere": linked(lambda run: run / "lake", lambda out: out),
    "a table from elsewhere": linked(part_of, lambda out: out / "secret"),
    "a table without an end": linked(part_of, lambda _: "/dev/zero"),
    "a table that is a pipe": a_fifo(part_of),
    "a table that grows when it is read": a_bomb,
    "a table that is cut off": lambda run, _: os.truncate(part_of(run), 200),
    "names that drive a terminal": in_run_json(
        run="\x1b]0;x\x07\x1b[2J", experiment="\x1b[31m", arm="\u202egnp"
    ),
    "names that are code of a page": in_run_json(
        run="<script>alert(1)</script>", experiment="'\"><img src=x onerror=alert(1)>"
    ),
    "a name that leads out": in_run_json(run="../../outside/folder", experiment="/etc"),
    "numbers that no clock has": in_run_json(
        zero={"wall_ns": 10**40, "mono_ns": -1}, time_scale=1e-308, repetition=10**30
    ),
    "lists where names belong": in_run_json(groups=[[1], None, {"name": {}}], topics={"T": 1}),
    "a manifest of files elsewhere": replaced(
        "manifest.json",
        b'{"schema":"failback.manifest/1","files":{"../../outside/secret":{"bytes":1,"sha256":"0"},'
        b'"/etc/passwd":{"bytes":1,"sha256":"0"}},"run_sha256":"0"}',
    ),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run of the harness, and one of an observer whose lake has to be made again."""
    folder = tmp_path_factory.mktemp("models")
    builder, _ = c2()
    story = at_work(100, file=90, pause=4)
    serve(story, 150)
    come_back(story, 90)
    take_over(story, 200)
    observed = written(story, folder / "observed")
    assert main(["report", str(observed)]) == 0
    (observed / "lake.json").unlink(missing_ok=True)
    return {"recorded": builder.write(folder / "recorded"), "observed": observed}


@pytest.mark.few(0, 46)
@pytest.mark.parametrize("kind", ["recorded", "observed"])
@pytest.mark.parametrize("name", FOLDERS)
def test_nothing_happens_beside_what_was_typed(
    name: str,
    kind: str,
    models: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    outside, runs = tmp_path / "outside", tmp_path / "runs"
    (outside / "folder").mkdir(parents=True)
    for each in ("secret", "kept"):
        (outside / each).write_text("TOP-SECRET-WORD of another file\n")
    run = Path(shutil.copytree(models[kind], runs / "sent"))
    FOLDERS[name](run, outside)
    if not name.startswith("a manifest"):
        with suppress(OSError, ValueError):
            write_manifest_of_files(run)
    before = listing(outside)
    for line in COMMANDS:
        words = [word.format(run=run, runs=runs) for word in line.split()]
        words = [word.replace("SELECT_1", "SELECT 1") for word in words]
        with watched() as acts:
            code = main(words)
        out, err = capsys.readouterr()
        said = f"{line}: {code}\n{out[-500:]}\n{err[-1500:]}"
        assert code in EXIT_CODES, said
        assert "internal error" not in err, said
        assert "Traceback" not in err, said
        assert not acts, f"{acts} {said}"
        assert listing(outside) == before, said
        assert "TOP-SECRET-WORD" not in out + err, said
        assert not set(out + err) & {"\x1b", "\x07", "\u202e"}, said
    with watched() as acts:
        pages = shown(runs)
    assert not acts
    assert listing(outside) == before
    for target, (status, text) in pages.items():
        assert status in (200, 404, 422), f"{target}: {status}\n{text[-500:]}"
        assert "TOP-SECRET-WORD" not in text
        assert "<script>alert(1)" not in text
        assert "<img src=x" not in text
    page = run / "report" / "report.html"
    if page.is_file():
        text = page.read_text()
        assert "<script>alert(1)" not in text
        assert "<img src=x" not in text
        assert "TOP-SECRET-WORD" not in text or page.is_symlink()


def shown(runs: Path) -> dict[str, tuple[int, str]]:
    """Return what the dashboard's pages of the runs in a folder are."""
    app, _ = make_app(DashboardSettings(runs), [], lambda _: None)
    poller = app.state.shared.poller
    asyncio.run(poller.look_at_runs())
    asyncio.run(poller.look_at_live())
    targets = ["/", "/runs", *(f"/runs/{quote(each.run)}" for each in poller.state.runs)]
    return {target: ask(app, target, accept="text/html") for target in targets}


def write_manifest_of_files(run: Path) -> None:
    """Make the folder look whole, but for what would not end when it is read."""
    if all(
        path.is_file() and not path.is_symlink() for path in run.rglob("*") if not path.is_dir()
    ):
        write_manifest(run)


def listing(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }
