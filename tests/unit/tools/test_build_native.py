"""How kernels are compiled: with the guards of compiler and linker that this machine has."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from tools.build_native import find_compiler, fortified

from failback.broker.native import kernels


@pytest.mark.skipif(kernels is None, reason="no compiled kernels here: tools/build_native.py")
@pytest.mark.skipif(shutil.which("readelf") is None, reason="no readelf here: binutils")
def test_the_kernels_are_hardened() -> None:
    assert kernels is not None
    done = subprocess.run(
        [
            "readelf",
            "--wide",
            "--dynamic",
            "--program-headers",
            "--dyn-syms",
            str(kernels.__file__),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "BIND_NOW" in done.stdout
    assert "GNU_RELRO" in done.stdout
    assert "__stack_chk_fail" in done.stdout
    assert " RWE " not in done.stdout


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler here")
def test_a_compiler_without_the_third_level_of_checked_copies_gets_the_second(
    tmp_path: Path,
) -> None:
    old = tmp_path / "cc"
    old.write_text(
        '#!/bin/sh\ncase "$*" in *_FORTIFY_SOURCE=3*) echo "#warning" >&2; exit 1;; esac\n'
        f'exec {find_compiler()} "$@"\n'
    )
    old.chmod(0o755)
    assert fortified(str(old))[-1] == "-D_FORTIFY_SOURCE=2"
    newest = fortified(find_compiler())[-1].partition("=")[2]
    macros = [find_compiler(), "-O2", *fortified(find_compiler()), "-dM", "-E", "-x", "c", "-"]
    done = subprocess.run(
        macros, input="#include <features.h>\n", capture_output=True, text=True, check=True
    )
    assert f"#define __USE_FORTIFY_LEVEL {newest}\n" in done.stdout
