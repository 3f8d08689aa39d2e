"""Files that people write, read by Apache's classes and by us: equal, or different on purpose."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from failback.broker.config.config import BrokerConfig
from failback.protocol.properties import properties_of
from tests.support.brokers.foreign_properties import REFUSED, TEXTS
from tests.support.common.polling import SCALE
from tests.support.java.apache import java, server_home

ROOT = Path(__file__).parents[2]
FILES = ROOT / "tests" / "data" / "broker_conf"
OUTCOMES: dict[str, dict[str, Any]] = yaml.safe_load((FILES / "outcomes.yaml").read_text())
LATIN_ONLY = {data for data in TEXTS if b"\xef\xbb\xbf" in data or b"\xc3\xa9" in data}
"""A mark at the beginning, and UTF-8: Java takes their bytes for letters."""
COMPUTED = {"brokerName", "brokerIP1", "brokerIP2", "haListenPort", "rocketmqHome"}
COMPUTED |= {"storePathRootDir", "storePathCommitLog", "brokerConfigPath", "brokerId", "useTLS"}
"""What BrokerStartup or the host fills in, where a file does not say it."""
ON_PURPOSE = {
    "blanks-behind-values.conf": {
        "brokerName",  # "broker-a  "
        "fileReservedTime",  # 72: "48 " is no number
    },
    "windows-editor.conf": {"brokerClusterName"},  # its key begins with the mark
}
"""Keys by file that docs/compatibility.md says we read otherwise."""


class Read(NamedTuple):
    """What Java makes of one file."""

    error: str
    text: dict[str, str]
    settings: dict[str, str]


def read_by_java(files: list[Path]) -> list[Read]:
    command = [
        java(),
        "-cp",
        f"{server_home()}/lib/*",
        str(ROOT / "tests/java/tools/ConfReader.java"),
    ]
    command += map(str, files)
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120 * SCALE)
    found: list[Read] = []
    for line in done.stdout.splitlines():
        kind, *parts = line.split("\t")
        if kind == "F":
            found.append(Read("", {}, {}))
        elif kind == "E":
            found[-1] = Read(parts[0], {}, {})
        else:
            key, value = (part.encode("ascii").decode("unicode_escape") for part in parts)
            (found[-1].text if kind == "P" else found[-1].settings)[key] = value
    assert len(found) == len(files)
    return found


def test_properties_are_what_java_reads(tmp_path: Path) -> None:
    texts = [*TEXTS, *REFUSED]
    files = [tmp_path / f"{number}.conf" for number in range(len(texts))]
    for file, data in zip(files, texts, strict=True):
        file.write_bytes(data)
    read = dict(zip(texts, read_by_java(files), strict=True))
    different = {data for data in TEXTS if _joined(read[data].text) != properties_of(data).values}
    assert different == LATIN_ONLY
    for data in TEXTS:
        assert read[data].error == ""
    malformed = {data for data in REFUSED if read[data].error}
    assert malformed == {data for data in REFUSED if b"\\u" in data and b"\\ud83d" not in data}


def _joined(settings: dict[str, str]) -> dict[str, str]:
    """Join the halves of characters that Java keeps apart."""
    return {
        key: value.encode("utf-16", "surrogatepass").decode("utf-16")
        for key, value in settings.items()
    }


def test_published_files_give_the_settings_that_apache_has() -> None:
    names = [name for name, outcome in OUTCOMES.items() if "refused" not in outcome]
    read = dict(zip(names, read_by_java([FILES / name for name in names]), strict=True))
    compared = 0
    found: dict[str, dict[str, tuple[str, str]]] = {}
    for name in names:
        ours = BrokerConfig.load(FILES / name, {}).to_properties()
        theirs = read[name].settings
        keys = (ours.keys() & theirs.keys()) - (COMPUTED - read[name].text.keys())
        different = {
            key for key in keys if ours[key] != theirs[key] and (ours[key] or theirs[key] != "null")
        }
        different -= {"brokerIP1", "brokerIP2"} if not read[name].text.get("brokerIP1") else set()
        found[name] = {key: (ours[key], theirs[key]) for key in different}
        compared += len(keys)
    assert compared > 1000
    assert {name: set(keys) for name, keys in found.items() if keys} == ON_PURPOSE, found
