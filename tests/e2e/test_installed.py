"""The demo from an installed wheel, in a folder that is no checkout."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.common.installed import Installed, build_wheel
from tests.support.common.polling import SCALE


def test_the_quick_demo_runs_from_the_wheel(tmp_path: Path) -> None:
    (tmp_path / "wheel").mkdir()
    wheel, _ = build_wheel(tmp_path / "wheel")
    done = Installed(tmp_path, wheel).run("failback", "demo", "--quick", seconds=300 * SCALE)
    assert done.returncode == 0, done.stdout + done.stderr
    reports = sorted((tmp_path / "runs").glob("demo-*/*/report/report.json"))
    assert [json.loads(each.read_bytes())["arm"] for each in reports] == ["handover", "stay"]
    sizes = [each.with_name("report.html").stat().st_size for each in reports]
    assert all(100_000 < size < 1_500_000 for size in sizes), sizes
