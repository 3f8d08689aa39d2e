"""A namespace of a test's own, with identities that may do as little as the test wants."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.kube_lab.api import ApiError, Object
from tests.support.kube_lab.commands import Commands, Completed
from tests.support.kube_lab.control_plane import ControlPlane
from tests.support.kube_lab.kubeconfig import Access, write_kubeconfig

PRETEND_LABEL = "lab.failback.dev/pods"
"""On a namespace, with the value ``pretend``: its pods become Ready without any process."""
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
"""Labels of every namespace of a test: what Failback makes has to be admitted there."""
_NUMBERS = itertools.count(1)
_TOKEN_SECONDS = 24 * 3600


@dataclass(frozen=True, slots=True)
class Identity:
    """A ServiceAccount and the way in as it."""

    name: str
    user: str
    """As the audit log has it: ``system:serviceaccount:NAMESPACE:NAME``."""
    token: str
    kubeconfig: Path


class Namespace:
    """One namespace; everything in it goes when the test is over."""

    def __init__(
        self,
        control_plane: ControlPlane,
        name: str = "",
        labels: Mapping[str, str] | None = None,
    ) -> None:
        self.control_plane = control_plane
        self.name = name or f"t-{next(_NUMBERS)}-{secrets.token_hex(3)}"
        self.folder = control_plane.folder / "namespaces" / self.name
        self.folder.mkdir(parents=True)
        control_plane.api.create(
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": self.name, "labels": {**RESTRICTED, **(labels or {})}},
            }
        )
        self.api = control_plane.api.scoped(self.name)
        self.kubeconfig = write_kubeconfig(
            self.folder / "kubeconfig", control_plane.access, self.name
        )
        self._commands = Commands(self.kubeconfig, self.name, self.folder)
        self.api.wait("ServiceAccount", "default")
        self.api.wait("ConfigMap", "kube-root-ca.crt")

    def kubectl(self, *arguments: str, **options: Any) -> Completed:
        return self._commands.kubectl(*arguments, **options)

    def helm(self, *arguments: str, **options: Any) -> Completed:
        return self._commands.helm(*arguments, **options)

    def commands(self, identity: Identity) -> Commands:
        """Return kubectl and helm of another identity."""
        return Commands(identity.kubeconfig, self.name, self.folder / identity.name)

    def label(self, **labels: str | None) -> None:
        """Set or remove labels; ``_`` in a name is ``-``. For names with a dot use the API."""
        named = {name.replace("_", "-"): value for name, value in labels.items()}
        self.api.patch("Namespace", self.name, {"metadata": {"labels": named}})

    def pretend_pods(self) -> None:
        """Let pods of this namespace become Ready without any process. Call it before any pod."""
        body = {"metadata": {"labels": {PRETEND_LABEL: "pretend"}}}
        self.api.patch("Namespace", self.name, body)

    def create_claim(self, name: str) -> None:
        """Make a PersistentVolumeClaim of 1 GiB, which the node provides for."""
        wanted = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        }
        self.api.create({**_object("v1", "PersistentVolumeClaim", name), "spec": wanted})

    # --- identities ------------------------------------------------------------------------------

    def identity(
        self,
        name: str,
        rules: Sequence[Mapping[str, Any]] = (),
        *,
        cluster_rules: Sequence[Mapping[str, Any]] = (),
        server: str = "",
    ) -> Identity:
        """Create a ServiceAccount that may do what ``rules`` say and nothing else.

        Args:
            rules: Of a Role in this namespace, as in RBAC.
            cluster_rules: Of a ClusterRole bound for the whole cluster.
            server: Another URL than the API server's, such as a proxy's.
        """
        self.api.create(_object("v1", "ServiceAccount", name))
        if rules:
            self._grant(name, rules)
        if cluster_rules:
            self._grant_everywhere(name, cluster_rules)
        return self.identity_of(name, server=server)

    def kubeconfig_through(self, server: str) -> Path:
        """Return a kubeconfig of the administrator for another URL, such as a proxy's."""
        access = Access(server, self.control_plane.ca_file, self.control_plane.access.token)
        file = self.folder / f"kubeconfig-{secrets.token_hex(2)}"
        return write_kubeconfig(file, access, self.name)

    def identity_of(self, name: str, *, server: str = "") -> Identity:
        """Return the way in as a ServiceAccount that exists (a chart's, say)."""
        path = self.api.path("ServiceAccount", name, subresource="token")
        answer = self.api.request(
            "POST",
            path,
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"expirationSeconds": _TOKEN_SECONDS},
            },
        )
        token = answer["status"]["token"]
        access = Access(server or self.control_plane.url, self.control_plane.ca_file, token)
        file = self.folder / f"kubeconfig-{name}-{secrets.token_hex(2)}"
        user = f"system:serviceaccount:{self.name}:{name}"
        return Identity(name, user, token, write_kubeconfig(file, access, self.name))

    def _grant(self, name: str, rules: Sequence[Mapping[str, Any]]) -> None:
        role = _object("rbac.authorization.k8s.io/v1", "Role", name)
        self.api.create({**role, "rules": [dict(rule) for rule in rules]})
        binding = _object("rbac.authorization.k8s.io/v1", "RoleBinding", name)
        self.api.create({**binding, **self._binding("Role", name, name)})

    def _grant_everywhere(self, name: str, rules: Sequence[Mapping[str, Any]]) -> None:
        role_name = f"{self.name}-{name}"
        role = _object("rbac.authorization.k8s.io/v1", "ClusterRole", role_name)
        self.api.create({**role, "rules": [dict(rule) for rule in rules]})
        binding = _object("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", role_name)
        self.api.create({**binding, **self._binding("ClusterRole", role_name, name)})

    def _binding(self, kind: str, role: str, account: str) -> Object:
        return {
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": self.name}],
        }

    # --- the end ---------------------------------------------------------------------------------

    def clean_up(self) -> None:
        """Delete the namespace without waiting for it: finalizers of ours are taken off first.

        Pods go with grace 0; a node that runs them sees the deletion and ends their processes.
        """
        for kind in self._kinds_of_ours():
            with suppress(LookupError, ApiError):  # a definition may be on its way out
                self._free(kind)
        with suppress(ApiError):
            self.api.delete("Namespace", self.name)
        for kind in ("StatefulSet", "Job", "Deployment"):
            for item in self.api.list(kind):
                self.api.delete(kind, item["metadata"]["name"])
        for pod in self.api.list("Pod"):
            self.api.delete("Pod", pod["metadata"]["name"], grace=0)
        self.api.close()

    def _free(self, kind: str) -> None:
        for item in self.api.list(kind):
            if item["metadata"].get("finalizers"):
                with suppress(ApiError):
                    self.api.patch(
                        kind, item["metadata"]["name"], {"metadata": {"finalizers": None}}
                    )

    def _kinds_of_ours(self) -> list[str]:
        definitions = self.api.list("CustomResourceDefinition")
        return [
            item["spec"]["names"]["kind"]
            for item in definitions
            if item["spec"]["scope"] == "Namespaced"
        ]


def _object(api_version: str, kind: str, name: str) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}}
