"""etcd, kube-apiserver and kube-controller-manager on loopback, from nothing to stopped."""

from __future__ import annotations

import http.client
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path

from ruamel.yaml import YAML
from tools.setup_kube import build_server, need_etcd

from tests.support.common.polling import SCALE
from tests.support.kube_lab.api import Api, ApiError, Object, close_connections
from tests.support.kube_lab.audit import POLICY, AuditLog
from tests.support.kube_lab.kubeconfig import Access, read_kubeconfig, write_kubeconfig
from tests.support.kube_lab.servers import Server
from tests.support.net.ports import free_port
from tests.support.processes.child_process import ROOT

CRD_FOLDER = ROOT / "charts" / "failback" / "crds-src"
CONTROLLERS = (
    "statefulset-controller",
    "disruption-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "serviceaccount-controller",
    "root-ca-certificate-publisher-controller",
    "deployment-controller",
    "replicaset-controller",
    "job-controller",
    "ttl-after-finished-controller",
    "daemonset-controller",
    "persistentvolume-binder-controller",
    "persistentvolume-protection-controller",
    "persistentvolumeclaim-protection-controller",
)
_READY_SECONDS = 180
_STOP_SECONDS = 10


class ControlPlane:
    """A control plane that runs, as its clients see it; its folder says where it is."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pki = folder / "pki"
        self.kubeconfig = folder / "kubeconfig"
        self.audit = AuditLog(folder / "audit.log")

    @cached_property
    def access(self) -> Access:
        """The administrator's way in."""
        return read_kubeconfig(self.kubeconfig)

    @cached_property
    def api(self) -> Api:
        """A client of the administrator."""
        return Api(self.kubeconfig)

    @property
    def url(self) -> str:
        return self.access.server

    @property
    def ca_file(self) -> Path:
        """The serving certificate, signed by itself: what clients trust."""
        return self.access.ca_file

    def install_definition(self, manifest: Object) -> None:
        """Apply one CustomResourceDefinition and wait until it is Established."""
        self.api.apply(manifest)
        self.api.wait("CustomResourceDefinition", manifest["metadata"]["name"], _is_established)


class OwnControlPlane(ControlPlane):
    """One API server with its store and controllers. Start it from the main thread."""

    def __init__(self, folder: Path, crds: Sequence[Path] | None = None) -> None:
        """Choose ports and write the files; ``crds`` are YAML files, by default the project's."""
        super().__init__(folder)
        self._crds = sorted(CRD_FOLDER.glob("*.yaml")) if crds is None else list(crds)
        folder.mkdir(parents=True, exist_ok=True)
        self.pki.mkdir(exist_ok=True)
        self._ports = {name: free_port() for name in ("etcd", "peer", "api")}
        self._write_files()
        need_etcd()
        executable = build_server()
        self.etcd = Server("etcd", self._etcd_command(), folder)
        lazily = {"GOGC": "400"}  # of memory there is enough, of processor time there is not
        self.api_server = Server("kube-apiserver", self._api_command(executable), folder, lazily)
        self.controllers = Server("controllers", self._controllers_command(executable), folder)

    # --- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start all three; return when a namespace's default ServiceAccount exists."""
        self.etcd.start()
        self.start_api_server()
        for file in self._crds:
            self._install(file)
        # Only now: the garbage collector learns of new kinds at its start or 30 s later.
        self.controllers.start()
        self._await(self._has_default_account, "ServiceAccount default", self.controllers)

    def start_api_server(self) -> None:
        """Start it (again) and wait until it says it is ready."""
        self.api_server.start()
        self._await(self.ca_file.exists, "serving certificate", self.api_server)
        self._await(self._is_ready, "answer of /readyz", self.api_server)

    def restart_controllers(self) -> None:
        """Start the controller manager again, so that it knows kinds that were added late."""
        self.controllers.stop(_STOP_SECONDS)
        self.controllers.start()

    def stop(self) -> None:
        """Stop in the order in which none waits for another: etcd first would hang the server."""
        for server in (self.controllers, self.api_server, self.etcd):
            server.stop(_STOP_SECONDS)
        close_connections()
        shutil.rmtree(self.folder / "etcd", ignore_errors=True)

    # --- files and flags -------------------------------------------------------------------------

    def _write_files(self) -> None:
        token, url = secrets.token_hex(16), f"https://127.0.0.1:{self._ports['api']}"
        write_kubeconfig(self.kubeconfig, Access(url, self.pki / "apiserver.crt", token))
        tokens = self.folder / "tokens.csv"
        tokens.touch(mode=0o600)
        tokens.write_text(f'{token},admin,admin,"system:masters"\n')
        (self.folder / "audit.yaml").write_text(POLICY)
        key = self.folder / "sa.key"
        _openssl("genrsa", "-out", str(key), "2048")
        key.chmod(0o600)
        _openssl("rsa", "-in", str(key), "-pubout", "-out", str(self.folder / "sa.pub"))

    def _etcd_command(self) -> list[str]:
        client = f"http://127.0.0.1:{self._ports['etcd']}"
        peer = f"http://127.0.0.1:{self._ports['peer']}"
        return [
            "etcd",
            "--name=lab",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=lab={peer}",
            "--unsafe-no-fsync",
            "--logger=zap",
            "--log-level=warn",
        ]

    def _api_command(self, executable: Path) -> list[str]:
        folder = self.folder
        return [
            str(executable),
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self._ports['etcd']}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self._ports['api']}",
            f"--cert-dir={self.pki}",
            f"--token-auth-file={folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-signing-key-file={folder / 'sa.key'}",
            f"--service-account-key-file={folder / 'sa.pub'}",
            "--endpoint-reconciler-type=none",
            "--profiling=false",
            "--enable-priority-and-fairness=false",
            # Debian's etcd cannot say how far a watch has got. With the gate every watch without
            # a version, as Spark's, would need that.
            "--feature-gates=WatchList=false",
            "--allow-privileged=true",
            "--kubelet-preferred-address-types=InternalIP",
            f"--audit-policy-file={folder / 'audit.yaml'}",
            f"--audit-log-path={folder / 'audit.log'}",
            "--audit-log-mode=blocking",
        ]

    def _controllers_command(self, executable: Path) -> list[str]:
        return [
            str(executable),
            "kube-controller-manager",
            f"--kubeconfig={self.kubeconfig}",
            "--leader-elect=false",
            "--secure-port=0",
            f"--service-account-private-key-file={self.folder / 'sa.key'}",
            f"--root-ca-file={self.ca_file}",
            f"--controllers={','.join(CONTROLLERS)}",
            # The defaults are for a server that others need too: 20 requests a second.
            "--kube-api-qps=300",
            "--kube-api-burst=600",
            "--concurrent-statefulset-syncs=10",
        ]

    # --- waiting ---------------------------------------------------------------------------------

    def _await(self, condition: Callable[[], object], what: str, server: Server) -> None:
        deadline = time.monotonic() + _READY_SECONDS * SCALE
        while not condition():
            server.check()
            assert time.monotonic() < deadline, f"no {what}; see {server.log}"
            time.sleep(0.05)

    def _is_ready(self) -> bool:
        try:
            code, answer = self.api.raw("GET", "/readyz")
        except (OSError, http.client.HTTPException):
            return False
        return code == http.client.OK and answer == b"ok"

    def _has_default_account(self) -> bool:
        try:
            return self.api.find("ServiceAccount", "default") is not None
        except ApiError:
            return False

    def _install(self, file: Path) -> None:
        """Apply the definitions of a file and wait until they are served."""
        for manifest in YAML(typ="safe").load_all(file.read_text(encoding="utf-8")):
            if manifest:
                self.install_definition(manifest)


def _is_established(definition: Object) -> bool:
    conditions = definition.get("status", {}).get("conditions") or ()
    return any(item["type"] == "Established" and item["status"] == "True" for item in conditions)


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
