"""The collector over TLS, with a certificate made here."""

from __future__ import annotations

import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from failback.client.consumelog.upload.collector_client import CollectorAway, CollectorClient
from failback.client.consumelog.upload.upload import UploadShipper
from tests.support.analytics.collector_lab import CollectorLab, check_lake, uploads_of, write_log
from tests.support.common.polling import SCALE


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs openssl")
    folder = tmp_path_factory.mktemp("certificate")
    certificate, key = folder / "tls.crt", folder / "tls.key"
    command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key


def client_of(lab: CollectorLab, trusted: Path | None = None) -> CollectorClient:
    return CollectorClient(
        f"https://127.0.0.1:{lab.port}",
        token_file=lab.token_file,
        ca_file=trusted,
        timeout_seconds=60 * SCALE,
    )


@pytest.mark.sample
def test_segments_travel_over_tls_to_who_trusts_the_certificate(
    certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    chain, key = certificate
    write_log(tmp_path / "hot")
    truth = uploads_of(tmp_path / "hot")
    lab = CollectorLab(tmp_path / "lab", "--tls-cert", str(chain), "--tls-key", str(key))
    try:
        lab.process.start()
        assert "https://" in lab.process.wait_for("collector listens on")
        stranger = client_of(lab)
        with pytest.raises(CollectorAway, match="certificate verify failed"):
            stranger.stored("lab", "00" * 16)
        stranger.close()
        client = client_of(lab, chain)
        assert UploadShipper(tmp_path / "hot", client).ship_all().left == 0
        client.close()
        check_lake(lab.lake, truth)
        with socket.create_connection(("127.0.0.1", lab.port), timeout=60 * SCALE) as plain:
            plain.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
            try:
                answer = plain.recv(100)
            except ConnectionError:
                answer = b""
            assert b"200" not in answer
    finally:
        lab.process.dispose()
