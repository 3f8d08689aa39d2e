"""An S3-compatible server on loopback whose store is a folder: S3Proxy, in a JVM of its own."""

from __future__ import annotations

import http.client
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tools.setup import SetupError
from tools.setup_spark import ensure_s3_server

from failback.analytics.lake.store import open_store
from tests.support.analytics.run_documents import put_documents
from tests.support.common.polling import wait_until
from tests.support.java.apache import java
from tests.support.net.ports import free_port
from tests.support.processes.child_process import TestProcess

BUCKET = "failback"


@dataclass(frozen=True, slots=True)
class S3Server:
    """A running server with one bucket."""

    url: str
    process: TestProcess

    @property
    def environment(self) -> dict[str, str]:
        """The usual variables, by which every client finds and is let into it."""
        return {
            "AWS_ENDPOINT_URL_S3": self.url,
            "AWS_ACCESS_KEY_ID": "tester",
            "AWS_SECRET_ACCESS_KEY": "of-lakes",
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            # As for many stores that are not Amazon's: no checksums in trailers.
            "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
            "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required",
        }


@contextmanager
def s3_server(folder: Path) -> Iterator[S3Server]:
    """Start one; the bucket's objects are files below ``folder``."""
    if shutil.which(java()) is None:
        pytest.skip("needs Java 17")
    try:
        jars = ensure_s3_server()
    except SetupError as error:
        pytest.skip(str(error))
    store = folder / "store"
    (store / BUCKET).mkdir(parents=True)
    url = f"http://127.0.0.1:{free_port()}"
    settings = {
        "s3proxy.endpoint": url,
        "s3proxy.authorization": "aws-v2-or-v4",
        "s3proxy.identity": "tester",
        "s3proxy.credential": "of-lakes",
        "jclouds.provider": "filesystem-nio2",
        "jclouds.identity": "unused",
        "jclouds.credential": "unused",
        "jclouds.filesystem.basedir": str(store),
    }
    conf = folder / "s3proxy.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    command = [java(), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command += ["-cp", f"{jars}/*", "org.gaul.s3proxy.Main", "--properties", str(conf)]
    process = TestProcess("s3proxy", command, folder)
    try:
        process.start()
        wait_until(lambda: _answers(process, url), "an answer of the S3 server", 120)
        yield S3Server(url, process)
    finally:
        process.dispose()


def put_run(run: Path, lake: str) -> None:
    """Put rows and documents of a run folder into the store that the environment names."""
    store = open_store(lake)
    for path in sorted((run / "lake").rglob("*.parquet")):
        store.write(path.relative_to(run / "lake").as_posix(), path.read_bytes())
    put_documents(store, run)


def _answers(process: TestProcess, url: str) -> bool:
    assert process.alive, process.errors()[-2000:] + "\n".join(process.lines()[-20:])
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=10)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status in (200, 403)
    except OSError:
        return False
    finally:
        connection.close()
