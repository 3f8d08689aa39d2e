"""Compile the broker's kernels: ``PYTHON tools/build_native.py``, for that Python, in place.

The broker does without them, at two to three times the cost per message. So where there is no C
compiler, or no headers of this Python, one line says so and the exit code is 0 all the same;
``--require`` makes it 1, and warnings of the compiler errors. ``--sanitize`` makes kernels that end
the process at an access outside of memory or at undefined behaviour.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "broker-image" / "native"
PACKAGE = ROOT / "broker-image" / "failback" / "broker"
COMMON = ("-fPIC", "-shared", "-std=c11", "-Wall", "-Wextra", "-fvisibility=hidden")
HARDENED = ("-O2", "-fstack-protector-strong", "-Wl,-z,relro,-z,now")
SANITIZED = (
    *("-O1", "-g", "-fno-omit-frame-pointer"),
    *("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
)


class CannotBuild(Exception):
    """Why there are no kernels; the message is one line."""


def module_name() -> str:
    return f"_native{sysconfig.get_config_var('EXT_SUFFIX')}"


def find_compiler() -> str:
    """Return the C compiler. Raises :class:`CannotBuild` where there is none."""
    if found := os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc"):
        return found
    raise CannotBuild("there is no C compiler")


def fortified(compiler: str) -> list[str]:
    """Return the options for checked copies: level 3 where the compiler has it, else 2."""
    three, two = (["-U_FORTIFY_SOURCE", f"-D_FORTIFY_SOURCE={level}"] for level in (3, 2))
    trial = [compiler, "-O2", "-Werror", *three, "-fsyntax-only", "-x", "c", "-"]
    done = subprocess.run(trial, input=b"#include <stdio.h>\n", capture_output=True, check=False)
    return two if done.returncode else three


def fingerprint(flags: Sequence[str] = HARDENED) -> str:
    digest = hashlib.sha256(f"{sys.version} {COMMON} {flags}".encode())
    for path in sorted(SOURCES.iterdir()):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def build(folder: Path = PACKAGE, *, strict: bool = False, sanitize: bool = False) -> Path:
    """Compile unless what is there was made of the same sources; return the module's path.

    Raises:
        CannotBuild: No compiler, no headers, or the compiler refused the sources.
    """
    target = folder / module_name()
    stamp = target.with_suffix(".stamp")
    flags = SANITIZED if sanitize else HARDENED
    if target.exists() and stamp.exists() and stamp.read_text() == fingerprint(flags):
        return target
    compiler = find_compiler()
    include = sysconfig.get_path("include")
    if not (Path(include) / "Python.h").exists():
        raise CannotBuild(f"the headers of Python {sys.version.split()[0]} are not installed")
    made = target.with_suffix(f".{os.getpid()}")
    command = [compiler, *COMMON, *flags, *([] if sanitize else fortified(compiler))]
    command += [*(["-Werror"] if strict else []), f"-I{include}", "-o", str(made)]
    command += [str(path) for path in sorted(SOURCES.glob("*.c"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        made.unlink(missing_ok=True)
        raise CannotBuild(f"the compiler refused them:\n{done.stderr[-4000:]}")
    made.replace(target)
    stamp.write_text(fingerprint(flags))
    return target


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--require", action="store_true", help="fail where they cannot be built")
    parser.add_argument("--out", type=Path, default=PACKAGE, help="default: where it is imported")
    parser.add_argument("--sanitize", action="store_true", help="with AddressSanitizer and UBSan")
    options = parser.parse_args()
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        build(options.out, strict=options.require, sanitize=options.sanitize)
    except CannotBuild as reason:
        print(f"the broker runs without compiled kernels: {reason}", file=sys.stderr)
        return 1 if options.require else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
