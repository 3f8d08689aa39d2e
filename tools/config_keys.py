"""Write ``operator/failback/operator/engines/apache_keys.json``: the keys of Apache's brokers.

A broker sets from ``broker.conf`` what has a public setter of one argument in one of its classes of
configuration (``MixAll.properties2Object``: types int, long, double, boolean, float and String).
The setters of every published version are read here from the class files of its jars, which Maven
fetches. No broker runs. Run it by ``python tools/config_keys.py`` when a version is published, and
add that version to ``PUBLISHED`` of ``operator/engines/quirks.py`` first.
"""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

from failback.operator.engines.catalogue import GENERATED_FILE
from failback.operator.engines.quirks import PUBLISHED, applies

TARGET: Final = Path(__file__).parents[1] / "operator/failback/operator/engines" / GENERATED_FILE
_JARS: Final = {
    "rocketmq-common": "",
    "rocketmq-remoting": "",
    "rocketmq-store": "",
    "rocketmq-tiered-store": ">=5.1",
    "rocketmq-auth": ">=5.3",
}
"""Jars with classes of configuration → the versions that have them."""
_NOT_WHOLE: Final = ("5.3.4", "5.5.1")
"""Versions of which Maven Central lacks some of these jars: they count as the one before them."""
CLASSES: Final = (
    "org/apache/rocketmq/common/BrokerConfig",
    "org/apache/rocketmq/common/BrokerIdentity",
    "org/apache/rocketmq/store/config/MessageStoreConfig",
    "org/apache/rocketmq/remoting/netty/NettyServerConfig",
    "org/apache/rocketmq/remoting/netty/NettyClientConfig",
    "org/apache/rocketmq/auth/config/AuthConfig",
    "org/apache/rocketmq/tieredstore/common/TieredMessageStoreConfig",
    "org/apache/rocketmq/tieredstore/MessageStoreConfig",
)
_TYPES: Final = {
    "(I)V": ("int", 32),
    "(J)V": ("int", 64),
    "(Z)V": ("bool", 32),
    "(D)V": ("float", 32),
    "(F)V": ("float", 32),
    "(Ljava/lang/String;)V": ("string", 32),
}
"""Descriptor of a setter → type and bits of the key."""
_PUBLIC: Final = 0x0001
_STATIC: Final = 0x0008
_SIZES: Final = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2}
_SIZES_LATER: Final = {17: 4, 18: 4, 19: 2, 20: 2}
"""Tag of a constant → bytes behind it (Java Virtual Machine Specification, 4.4)."""
_POM: Final = """<project><modelVersion>4.0.0</modelVersion>
<groupId>io.failback</groupId><artifactId>config-keys</artifactId><version>1</version>
<packaging>pom</packaging>
<build><plugins><plugin><artifactId>maven-dependency-plugin</artifactId><configuration>
<artifactItems>{items}</artifactItems></configuration></plugin></plugins></build></project>
"""
Types = Mapping[str, tuple[str, int]]
"""Key → type and bits."""


def main() -> None:
    """Fetch the jars of every version and write the file."""
    with tempfile.TemporaryDirectory() as folder:
        versions = [each for each in PUBLISHED if each not in _NOT_WHOLE]
        fetch(versions, Path(folder))
        found = {version: keys_of(Path(folder) / version) for version in versions}
    TARGET.write_text(text_of(found), encoding="utf-8")
    print(f"{TARGET}: {len(json.loads(TARGET.read_text()))} keys of {len(found)} versions")


def fetch(versions: Sequence[str], folder: Path) -> None:
    """Put the jars of each version into a folder of its name, by one run of Maven.

    Raises:
        SystemExit: There is no Maven, or it could not fetch them.
    """
    maven = shutil.which("mvn")
    if maven is None:
        sys.exit("config_keys.py needs Maven: apt-get install maven")
    items = "".join(
        f"<artifactItem><groupId>org.apache.rocketmq</groupId><artifactId>{jar}</artifactId>"
        f"<version>{version}</version><outputDirectory>{folder / version}</outputDirectory>"
        "</artifactItem>"
        for version in versions
        for jar, having in _JARS.items()
        if applies(having, version)
    )
    pom = folder / "pom.xml"
    pom.write_text(_POM.format(items=items), encoding="utf-8")
    command = [maven, "-q", "-B", "--strict-checksums", "-f", str(pom), "dependency:copy"]
    if subprocess.run(command, check=False).returncode:
        sys.exit("Maven could not fetch the jars")


def keys_of(folder: Path) -> Types:
    """Return the keys that the classes of configuration in a folder's jars have."""
    found: dict[str, tuple[str, int]] = {}
    for jar in sorted(folder.glob("rocketmq-*.jar")):
        with zipfile.ZipFile(jar) as archive:
            names = set(archive.namelist())
            for each in (f"{name}.class" for name in CLASSES if f"{name}.class" in names):
                for key, kind in setters(archive.read(each)):
                    found[key] = max(kind, found.get(key, kind))
    return found


def setters(code: bytes) -> Iterator[tuple[str, tuple[str, int]]]:
    """Yield key, and type and bits, of each setter of a class file."""
    texts: dict[int, str] = {}
    (count,) = struct.unpack_from(">H", code, 8)
    at, index = 10, 1
    while index < count:
        tag = code[at]
        if tag == 1:
            (length,) = struct.unpack_from(">H", code, at + 1)
            texts[index] = code[at + 3 : at + 3 + length].decode("utf-8", "replace")
            at += 3 + length
        else:
            at += 1 + (_SIZES.get(tag) or _SIZES_LATER[tag])
        index += 2 if tag in (5, 6) else 1  # a long or double takes two places
    (interfaces,) = struct.unpack_from(">H", code, at + 6)
    at += 8 + 2 * interfaces
    for is_method in (False, True):
        (members,) = struct.unpack_from(">H", code, at)
        at += 2
        for _ in range(members):
            flags, name, descriptor, attributes = struct.unpack_from(">4H", code, at)
            at += 8
            for _ in range(attributes):
                at += 6 + struct.unpack_from(">I", code, at + 2)[0]
            word, kind = texts[name], _TYPES.get(texts[descriptor])
            if not is_method or kind is None or flags & (_PUBLIC | _STATIC) != _PUBLIC:
                continue
            if word.startswith("set") and len(word) > 3:
                yield word[3].lower() + word[4:], kind


def text_of(found: Mapping[str, Types]) -> str:
    """Return the file: one line a key.

    Args:
        found: Version → its keys, in the order of the versions.
    """
    lines = []
    for key in sorted({key for keys in found.values() for key in keys}, key=in_order):
        kind, bits = max(keys[key] for keys in found.values() if key in keys)
        row: dict[str, str | int] = {"type": kind}
        if bits != 32:
            row["bits"] = bits
        if versions := specifiers([(each, key in keys) for each, keys in found.items()]):
            row["versions"] = versions
        lines.append(f"{json.dumps(key)}: {json.dumps(row)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def in_order(key: str) -> tuple[str, str]:
    """Return by what the keys of the file are sorted: two differ in the case of a letter alone."""
    return key.lower(), key


def specifiers(known: Sequence[tuple[str, bool]]) -> str:
    """Return the versions with ``True``, as ``quirks.applies`` reads them; empty = all.

    >>> specifiers([("4.9.0", False), ("4.9.1", True), ("5.0.0", False), ("5.1.0", True)])
    '>=4.9.1,<5.0.0|>=5.1.0'
    """
    runs = [(has, [version for version, _ in run]) for has, run in groupby(known, lambda e: e[1])]
    found = []
    for at, (has, versions) in enumerate(runs):
        if has:
            first = [f">={versions[0]}"] if at else []
            end = [f"<{runs[at + 1][1][0]}"] if at + 1 < len(runs) else []
            found.append(",".join(first + end))
    return "|".join(found)


if __name__ == "__main__":
    main()
