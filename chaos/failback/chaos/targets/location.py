"""Where a run finds its cluster: a local runtime, or a namespace of a Kubernetes cluster.

A location is what a parent process hands to the run's own process, and what a run folder keeps for
a later heal; a target and a lease are made from it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from failback.chaos.cluster.lease import Lease
from failback.chaos.cluster.target import Target
from failback.chaos.errors import TargetError
from failback.chaos.run_folder.run_folder import ClusterLease
from failback.chaos.targets.local import ControlSocket, LocalTarget
from failback.protocol.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Location:
    """One of the two: ``root`` or ``control_socket``, else ``namespace``."""

    root: str = ""
    control_socket: str = ""
    namespace: str = ""
    kubeconfig: str = ""
    """Empty: the pod's own account, else the user's kubeconfig."""

    @property
    def is_kubernetes(self) -> bool:
        return bool(self.namespace)

    def to_json(self) -> str:
        return json.dumps({key: value for key, value in asdict(self).items() if value})

    @classmethod
    def from_json(cls, text: str) -> Location:
        return cls(**json.loads(text))

    @classmethod
    def of_note(cls, note: Mapping[str, Any]) -> Location:
        """The location of a run that was started earlier, from its ``target.json``."""
        known = cls.__slots__
        return cls(**{key: str(note[key]) for key in known if note.get(key)})

    def is_gone(self) -> bool:
        """Tell whether a local runtime ended in order: its control file goes with it."""
        return bool(self.root) and not (Path(self.root) / "control.json").exists()

    def connect(self, cluster: str) -> tuple[Target, Lease]:
        """Reach the cluster.

        Raises:
            TargetError: There is no answer from there.
            ConfigError: The location names nothing.
        """
        if self.is_kubernetes:
            return self._connect_kubernetes(cluster)
        if not self.root and not self.control_socket:
            raise ConfigError("target", "give the runtime's root or its control socket")
        control = self._control()
        folder = Path(self.root) if self.root else control.path.parent
        return LocalTarget(control, cluster), ClusterLease(folder, cluster)

    def _control(self) -> ControlSocket:
        """A restarted runtime has another socket than the one that was noted."""
        try:
            if self.root:
                return ControlSocket.of_root(Path(self.root))
        except TargetError:
            if not self.control_socket:
                raise
        return ControlSocket(Path(self.control_socket))

    def _connect_kubernetes(self, cluster: str) -> tuple[Target, Lease]:
        from failback.chaos.targets.kube.api import KubeApi
        from failback.chaos.targets.kube.lease import KubeLease
        from failback.chaos.targets.kube.target import KubernetesTarget

        api = KubeApi.connect(self.namespace, kubeconfig=self.kubeconfig or None)
        return KubernetesTarget(api, cluster), KubeLease(api, cluster)
