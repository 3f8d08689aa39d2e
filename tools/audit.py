"""Look for known vulnerabilities in what is installed: ``python tools/audit.py``, ``make audit``.

pip-audit asks the package index about every version of requirements/. A vulnerability that a newer
version fixes is a failure; one without a fix is shown. Where the index does not answer, or knows
nothing of vulnerabilities, one line says so and that is no failure.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
SECONDS: Final = 300


def asked() -> tuple[dict[str, Any] | None, str]:
    """Return what pip-audit found, or nothing and why."""
    command = [sys.executable, "-m", "pip_audit", "--format=json", "--progress-spinner=off"]
    command += ["--disable-pip", "--require-hashes"]
    command += [f"--requirement={path}" for path in sorted((ROOT / "requirements").glob("*.txt"))]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        return json.loads(done.stdout), ""
    except subprocess.TimeoutExpired:
        return None, f"no answer within {SECONDS} s"
    except json.JSONDecodeError:
        return None, (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]


def judge(found: dict[str, Any]) -> tuple[list[str], bool]:
    """Return the lines to show of pip-audit's report, and whether a fix is to be had."""
    packages = {each["name"]: each for each in found["dependencies"]}.values()
    unknown = [each["name"] for each in packages if "skip_reason" in each]
    flaws = [(each, flaw) for each in packages for flaw in each.get("vulns", ())]
    lines = [
        f"{each['name']} {each['version']} has {flaw['id']}, "
        + (f"fixed in {', '.join(flaw['fix_versions'])}" if flaw["fix_versions"] else "no fix yet")
        for each, flaw in flaws
    ]
    known = len(packages) - len(unknown)
    lines.append(f"packages looked up: {known}, vulnerabilities: {len(flaws)}")
    if unknown:
        lines[-1] += f"; the index does not answer about {len(unknown)}, such as {unknown[0]}"
    return lines, any(flaw["fix_versions"] for _, flaw in flaws)


def main() -> int:
    found, problem = asked()
    lines, failed = ([f"not done: {problem}"], False) if found is None else judge(found)
    for line in lines:
        print(f"audit: {line}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
