"""What a client writes comes back from the hot log and from the lake."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from failback.analytics.lake.lake import open_lake
from failback.client.consumelog.hot_format import BadHotLog, ConsumeLogError
from failback.client.consumelog.reader import read_hot
from failback.client.consumelog.schema import TABLES, lake_schema
from failback.client.consumelog.upload.sealing import Shipper
from failback.client.consumelog.writer import ConsumeLog
from tests.support.clients.consumelog import begin, processes_in_lake


def open_log(folder: Path, **settings: object) -> ConsumeLog:
    settings = {"run": "r1", "proc": b"p" * 16, "proc_no": 3, "role": "consumer", **settings}
    return ConsumeLog(folder, host="h", sync_seconds=0, **settings)  # type: ignore[arg-type]


def only_file(folder: Path) -> Path:
    (path,) = folder.glob("*.fblog")
    return path


def rows(lake: Path, table: str) -> list[dict[str, object]]:
    found = open_lake(lake, "r1", [table])
    return found.records(table)


def test_a_row_of_every_table_survives_to_parquet(tmp_path: Path) -> None:
    samples = {"N": "name", "s": "täxt\n", "T": 5, "l": 1 << 40, "i": 7, "b": True}
    samples |= {"id": b"i" * 16, "x": b"\0\xff", "S": ["a", "b"]}
    written = {}
    with open_log(tmp_path / "hot") as log:
        for name, table in TABLES.items():
            if name.startswith(("deliver", "assign")):
                continue
            full = {column.name: samples[column.kind] for column in table.own}
            sparse = {
                column.name: samples[column.kind] for column in table.own if not column.nullable
            }
            log.write(name, **full)
            log.write(name, **sparse)
            written[name] = (full, sparse)
    Shipper(tmp_path / "hot", tmp_path / "lake").seal_all(final=True)
    assert not list((tmp_path / "hot").iterdir())
    for name, (full, sparse) in written.items():
        first, second = rows(tmp_path / "lake", name)
        assert {key: first[key] for key in full} == full
        assert {key: second[key] for key in full} == {**dict.fromkeys(full), **sparse}
        assert (first["run"], first["proc"], first["proc_no"]) == ("r1", b"p" * 16, 3)
        (part,) = (tmp_path / "lake").glob(f"table={name}/date=*/run=r1/*.parquet")
        assert pq.read_schema(part).equals(lake_schema(name))
        for told, meant in zip(pq.read_schema(part), lake_schema(name), strict=True):
            assert (told.metadata or {}).items() >= meant.metadata.items()
        assert pq.read_schema(part).metadata[b"failback.schema"] == b"failback.log/1"


def test_begin_and_end_become_one_row(tmp_path: Path) -> None:
    with open_log(tmp_path / "hot") as log:
        first, second = begin(log, 0), begin(log, 1)
        log.deliver_end(second, "LATER", False, 0)
    Shipper(tmp_path / "hot", tmp_path / "lake").seal_all()
    abandoned, ended = rows(tmp_path / "lake", "deliver")
    assert (abandoned["did"], abandoned["status"], abandoned["et"]) == (first, "ABANDONED", None)
    assert (ended["did"], ended["status"], ended["applied"]) == (second, "LATER", False)
    assert ended["et"] >= ended["bt"]  # type: ignore[operator]
    assert [abandoned["seq"], ended["seq"]] == [1, 2]
    assert first >> 40 == 3
    process = processes_in_lake(tmp_path / "lake", "r1")[3]
    assert (process.records, process.last_seq, process.missing) == (3, 3, 0)


def test_an_end_in_a_later_file_travels_alone(tmp_path: Path) -> None:
    with open_log(tmp_path / "hot", segment_bytes=4096) as log:
        did = begin(log, 0)
        log.write("assign", grp="g", inc=3, pqe=9, broker="b", ptopic="t", qid=1, t=1,
                  start_off=0, src="STORE")  # fmt: skip
        while log.path.name.endswith("00000000.fblog"):
            log.write("life", state="x" * 100)
        log.deliver_end(did, "SUCCESS", True, 1)
        log.write("assign_end", inc=3, pqe=9, broker="b", ptopic="t", qid=1, end_t=8,
                  end_reason="SHUTDOWN")  # fmt: skip
    Shipper(tmp_path / "hot", tmp_path / "lake").seal_all()
    (row,) = rows(tmp_path / "lake", "deliver")
    (end,) = rows(tmp_path / "lake", "deliver_end")
    assert row["status"] == "ABANDONED"
    assert (end["did"], end["status"]) == (did, "SUCCESS")
    (assign,) = rows(tmp_path / "lake", "assign")
    (assign_end,) = rows(tmp_path / "lake", "assign_end")
    assert assign["end_t"] is None
    assert (assign_end["pqe"], assign_end["end_reason"]) == (9, "SHUTDOWN")
    assert processes_in_lake(tmp_path / "lake", "r1")[3].missing == 0


def test_sealing_twice_gives_equal_bytes(tmp_path: Path) -> None:
    with open_log(tmp_path / "hot") as log:
        for n in range(50):
            log.deliver_end(begin(log, n), "SUCCESS", True, n)
    hot = only_file(tmp_path / "hot")
    kept = hot.read_bytes()
    found = []
    for lake in (tmp_path / "a", tmp_path / "b"):
        hot.write_bytes(kept)
        Shipper(tmp_path / "hot", lake).seal_all()
        found.append({p.relative_to(lake): p.read_bytes() for p in lake.rglob("*.parquet")})
    assert found[0] == found[1]
    assert len(found[0]) == 1


def test_a_live_writers_file_is_left_alone(tmp_path: Path) -> None:
    with open_log(tmp_path / "hot") as log:
        begin(log, 0)
        report = Shipper(tmp_path / "hot", tmp_path / "lake").seal_all()
        assert report.held == (log.path,)
        assert not (tmp_path / "lake").exists()
    assert Shipper(tmp_path / "hot", tmp_path / "lake").seal_all().sealed


def test_an_old_file_is_rotated_at_the_next_row(tmp_path: Path) -> None:
    with open_log(tmp_path / "hot", segment_seconds=0.0) as log:
        for n in range(3):
            begin(log, n)
    names = sorted(path.name[-14:] for path in (tmp_path / "hot").iterdir())
    assert names == ["00000000.fblog", "00000001.fblog", "00000002.fblog"]
    logs = [read_hot(path) for path in sorted((tmp_path / "hot").iterdir())]
    assert [log.head.seq_lo for log in logs] == [1, 2, 3]


@pytest.mark.parametrize("cut", [1, 5, 9, 60])
def test_a_torn_record_is_dropped_and_counted(tmp_path: Path, cut: int) -> None:
    with open_log(tmp_path / "hot") as log:
        begin(log, 0)
        begin(log, 1)
    path = only_file(tmp_path / "hot")
    path.write_bytes(path.read_bytes()[:-cut])
    hot = read_hot(path)
    assert ([record[1] for record in hot.records], hot.torn) == ([1], True)


def test_a_record_without_its_length_does_not_exist(tmp_path: Path) -> None:
    with open_log(tmp_path / "hot") as log:
        begin(log, 0)
        position = log._position
        begin(log, 1)
    path = only_file(tmp_path / "hot")
    data = bytearray(path.read_bytes())
    data[position : position + 4] = bytes(4)
    path.write_bytes(data)
    hot = read_hot(path)
    assert ([record[1] for record in hot.records], hot.torn) == ([1], True)


def test_a_changed_byte_ends_the_file_there(tmp_path: Path) -> None:
    with open_log(tmp_path / "hot") as log:
        begin(log, 0)
        begin(log, 1)
    path = only_file(tmp_path / "hot")
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(data)
    assert len(read_hot(path).records) == 1


def test_a_file_of_another_kind_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "x.fblog").write_bytes(b"nothing of ours")
    with pytest.raises(BadHotLog, match="head cannot be read"):
        read_hot(tmp_path / "x.fblog")
    report = Shipper(tmp_path, tmp_path / "lake").seal_all()
    assert report.bad == (tmp_path / "x.fblog",)


def test_unknown_and_missing_columns_are_refused(tmp_path: Path) -> None:
    with open_log(tmp_path / "hot") as log:
        with pytest.raises(ValueError, match="no column sate"):
            log.write("life", sate="up")
        with pytest.raises(ValueError, match="needs column state"):
            log.write("life")
        assert log.last_seq == 0


def test_a_log_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    # Bigger than any disk: the blocks are taken before the first row, so nothing can SIGBUS later.
    with pytest.raises(ConsumeLogError):
        open_log(tmp_path / "hot", segment_bytes=1 << 60)
    assert not list((tmp_path / "hot").iterdir())


def test_a_closed_log_takes_no_row(tmp_path: Path) -> None:
    log = open_log(tmp_path / "hot")
    log.close()
    with pytest.raises(ConsumeLogError, match="closed"):
        begin(log, 0)
