"""Certificates made by openssl for one test: a CA, and what it signs."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

LOOPBACK = "IP:127.0.0.1"


@dataclass(frozen=True)
class Certificate:
    """A certificate and its key, PEM; the key is PKCS#8, as Java wants it."""

    chain: Path
    key: Path


class Authority:
    """A CA of its own, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        if shutil.which("openssl") is None:
            pytest.skip("needs openssl")
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.file = folder / "ca.pem"
        self._key = folder / "ca.key"
        _openssl(
            "req", "-x509", *_NEW_KEY, "-days", "2", "-subj", f"/CN={folder.name} CA",
            "-addext", "keyUsage=critical,keyCertSign,cRLSign",
            "-keyout", self._key, "-out", self.file,
        )  # fmt: skip

    def issue(self, name: str, *names: str, expired: bool = False) -> Certificate:
        """Return a certificate for a peer or a client.

        Args:
            name: Of its files, and its common name.
            names: What it is for, as openssl writes it: ``IP:127.0.0.1``, ``DNS:broker``.
            expired: It was valid for a day, long ago.
        """
        key, request, chain = (self._folder / f"{name}.{end}" for end in ("key", "csr", "pem"))
        _openssl("req", "-new", *_NEW_KEY, "-subj", f"/CN={name}", "-keyout", key, "-out", request)
        extensions = self._folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={','.join(names or (LOOPBACK,))}\n")
        index = self._folder / f"{name}.index"
        index.touch()
        configuration = self._folder / f"{name}.conf"
        configuration.write_text(
            f"[ca]\ndefault_ca=a\n[a]\ndatabase={index}\nnew_certs_dir={self._folder}\n"
            "default_md=sha256\npolicy=p\nrand_serial=yes\n[p]\ncommonName=supplied\n"
        )
        end = "20200102000000Z" if expired else "20491231000000Z"
        _openssl(
            "ca", "-batch", "-config", configuration, "-cert", self.file, "-keyfile", self._key,
            "-in", request, "-out", chain, "-notext", "-extfile", extensions,
            "-startdate", "20200101000000Z", "-enddate", end,
        )  # fmt: skip
        return Certificate(chain, key)


_NEW_KEY: Sequence[str] = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def _openssl(*words: str | Path) -> None:
    done = subprocess.run(
        ["openssl", *map(str, words)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
