"""Java clients 4.9.8 and mqadmin speak TLS with our brokers and name servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.common.polling import wait_until
from tests.support.java.apache import (
    FRUGAL,
    Broker,
    NameServer,
    failed_by,
    got_by,
    mqadmin,
    sent_by,
)
from tests.support.java.java_lab import Lab
from tests.support.net.certificates import Authority
from tests.support.net.tls_files import TlsFolder

COUNT = 50
TOPIC = "TlsTopic"


class Guarded:
    """A name server and a pair of ours that show certificates to each other."""

    def __init__(self, lab: Lab, mode: str) -> None:
        self.lab = lab
        self.authority = Authority(lab.folder / "ca")
        self.server, self.client = self.authority.issue("server"), self.authority.issue("client")
        self._mode = mode
        self._serve_in(lab.folder / "ns0")
        self.namesrv: NameServer = lab.namesrv()
        self.master, self.slave = self._broker(0, "SYNC_MASTER"), self._broker(1, "SLAVE")
        self.properties = {"tls.enable": "true", "tls.config.file": str(self._client_file())}

    def _serve_in(self, folder: Path) -> None:
        made = TlsFolder(folder, self.authority, self.server)
        made.set(server_mode=self._mode, enable="true", test_mode_enable="false")
        made.set(client_certPath="tls.crt", client_keyPath="tls.key")
        made.set(server_need_client_auth="require", server_authClient="true")

    def _broker(self, broker_id: int, role: str) -> Broker:
        quick = {"failbackTimeScale": 0.2, "failbackRules": "guarded"}
        made = self.lab.broker(
            "failback", self.namesrv, broker_id=broker_id, role=role, settings=quick
        )
        self._serve_in(made.folder)
        made.start()
        return made

    def replicates(self, starts: int) -> None:
        """Wait until the slave has compared its log with the master's, and copies it."""
        said = self.slave.process.errors  # of all its starts
        wait_until(lambda: said().count("HA: connected to master") == starts, "it replicates")
        assert "can't be compared" not in said()

    def _client_file(self) -> Path:
        file = self.lab.folder / "client.properties"
        settings = {
            "test.mode.enable": "false",
            "client.authServer": "true",
            "client.trustCertPath": self.authority.file,
            "client.certPath": self.client.chain,
            "client.keyPath": self.client.key,
        }
        file.write_text("".join(f"tls.{name}={value}\n" for name, value in settings.items()))
        return file

    def sent(self, first: int, count: int, *, tls: bool) -> int:
        """Send messages; return how many were acknowledged, by slave and master."""
        producer = self.lab.program(
            "Producer",
            self.namesrv,
            properties=self.properties if tls else {},
            topic=TOPIC,
            first=first,
            count=count,
            size=3000,
        )
        producer.wait_for("done")
        assert len(failed_by(producer)) + len(sent_by(producer)) == count
        return sum(each.status == "SEND_OK" for each in sent_by(producer))


@pytest.mark.parametrize("mode", ["permissive", "enforcing"])
def test_java_clients_speak_tls_with_a_pair(lab: Lab, mode: str) -> None:
    made = Guarded(lab, mode)
    made.replicates(1)
    assert made.sent(0, COUNT, tls=True) == COUNT
    assert made.sent(COUNT, 1, tls=False) == (mode == "permissive")
    consumer = lab.program("PushConsumer", made.namesrv, properties=made.properties, topic=TOPIC)
    wanted = set(range(COUNT + (mode == "permissive")))
    wait_until(lambda: {each.number for each in got_by(consumer)} == wanted, "all of them")
    flags = (*FRUGAL, *(f"-D{name}={value}" for name, value in made.properties.items()))
    listed = mqadmin(
        lab.folder / "admin", "clusterList", "-n", made.namesrv.address, java_flags=flags
    )
    assert {row[3] for row in listed.rows} == {made.master.address, made.slave.address}
    assert made.slave.stop() == 0
    made.slave.start()
    made.replicates(2)
