"""An Apache cluster that asks who comes: access keys, TLS alone, client certificates."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from failback.client.remoting.guarded.cluster import Given
from tests.support.java.apache import Broker, NameServer, server_home
from tests.support.net.certificates import Authority, Certificate

ADMIN, ADMIN_SECRET = "admin-key", "hush-of-the-admin"
OPS, OPS_SECRET, OPS_TOKEN = "ops-key", "hush-of-operations", "hush-of-the-token"
SECRETS = (ADMIN_SECRET, OPS_SECRET, OPS_TOKEN)
_ACL = f"""accounts:
- accessKey: {ADMIN}
  secretKey: {ADMIN_SECRET}
  admin: true
- accessKey: {OPS}
  secretKey: {OPS_SECRET}
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms:
  - orders=PUB|SUB
  - RMQ_SYS_TRACE_TOPIC=PUB|SUB
  groupPerms:
  - billing=SUB
  - TOOLS_CONSUMER=SUB
"""
_FLAGS = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


@dataclass(frozen=True)
class KeyFiles:
    """Access key files, as mqadmin's."""

    admin: Path
    ops: Path
    wrong: Path
    unknown: Path


class GuardedCluster:
    """A name server and a broker of Apache 4.9.7; only TLS is taken, of who has a certificate."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder / "ca")
        self.strangers = Authority(folder / "strangers")
        self.server = self.authority.issue("server")
        self.client = self.authority.issue("client")
        self.keys = KeyFiles(
            *(
                self._key_file(name, *lines)
                for name, *lines in (
                    ("admin", ADMIN, ADMIN_SECRET),
                    ("ops", OPS, OPS_SECRET, OPS_TOKEN),
                    ("wrong", OPS, "hush-of-nobody"),
                    ("unknown", "nobody-key", "hush-of-nobody"),
                )
            )
        )
        home = folder / "home"
        shutil.copytree(server_home() / "home", home)
        (home / "conf" / "plain_acl.yml").write_text(_ACL)
        self.home = home
        self.tls = self._tls()
        """Properties of every JVM that takes part."""
        self.flags = (*_FLAGS, *(f"-D{name}={value}" for name, value in self.tls.items()))
        self.namesrv = NameServer("apache", folder / "ns", java_flags=self.flags, home=home)

    def start(self) -> None:
        """Return when both serve; the broker is registered a little later."""
        self.namesrv.start()
        self.broker = Broker(
            "apache",
            self.folder / "broker",
            self.namesrv.address,
            java_flags=self.flags,
            home=self.home,
            settings={
                "aclEnable": "true",
                "traceTopicEnable": "true",
                "waitTimeMillsInSendQueue": 30_000,  # machines of tests are busy
            },
        )
        self.broker.start()

    def dispose(self) -> None:
        for node in (getattr(self, "broker", None), self.namesrv):
            if node is not None:
                node.process.dispose()

    def options(self, key: Path | None = None, prefix: str = "") -> list[str]:
        """Return the options that name this cluster, with the key of operations."""
        return [
            "--namesrv", self.namesrv.address, "--access-key-file", str(key or self.keys.ops),
            f"--{prefix}tls-ca", str(self.authority.file),
            f"--{prefix}tls-cert", str(self.client.chain),
            f"--{prefix}tls-key", str(self.client.key),
        ]  # fmt: skip

    def given(self) -> Given:
        """Return the same as a program says it."""
        return Given(
            namesrv=self.namesrv.address,
            access_key_file=self.keys.ops,
            tls_ca=self.authority.file,
            tls_cert=self.client.chain,
            tls_key=self.client.key,
        )

    def serve_with(self, certificate: Certificate) -> None:
        """Give both another certificate; they read it within a second."""
        for source, target in zip((certificate.chain, certificate.key), self._served, strict=True):
            shutil.copy(source, target)

    def _key_file(self, name: str, key: str, secret: str, token: str = "") -> Path:
        file = self.folder / f"{name}.yml"
        lines = [f"accessKey: {key}", f"secretKey: {secret}"]
        lines += [f"securityToken: {token}"] if token else []
        file.write_text("\n".join(lines) + "\n")
        return file

    def _tls(self) -> dict[str, str]:
        self._served = (self.folder / "served.pem", self.folder / "served.key")
        self.serve_with(self.server)
        settings = {
            "tls.test.mode.enable": "false",
            "tls.server.need.client.auth": "require",
            "tls.server.certPath": self._served[0],
            "tls.server.keyPath": self._served[1],
            "tls.server.authClient": "true",
            "tls.server.trustCertPath": self.authority.file,
            "tls.client.authServer": "false",
            "tls.client.certPath": self.client.chain,
            "tls.client.keyPath": self.client.key,
        }
        file = self.folder / "tls.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return {
            "tls.server.mode": "enforcing",
            "tls.enable": "true",
            "tls.config.file": str(file),
        }
