"""How a guarded cluster is spoken to: the key that signs requests, and TLS."""

from __future__ import annotations

from failback.client.remoting.guarded.key_file import KeyFile
from failback.client.remoting.guarded.signing import sign
from failback.client.remoting.guarded.tls import Tls
from failback.protocol.command import RemotingCommand


class ClusterAccess:
    """What connections to one cluster have in common. Its text shows no secret."""

    def __init__(self, key_file: KeyFile | None = None, tls: Tls | None = None) -> None:
        self.key_file = key_file
        self.tls = tls

    def sign(self, request: RemotingCommand) -> None:
        """Sign a request, if there is a key."""
        if self.key_file is not None:
            sign(request, self.key_file.key)

    def __bool__(self) -> bool:
        return self.key_file is not None or self.tls is not None

    def __repr__(self) -> str:
        signs = f"signs by {self.key_file.path}" if self.key_file else "does not sign"
        return f"<ClusterAccess {signs}, {'TLS' if self.tls else 'plain'}>"
