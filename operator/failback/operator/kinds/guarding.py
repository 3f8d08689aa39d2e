"""Access control and TLS of brokers and name servers: the Secrets they mount, and how strict."""

from __future__ import annotations

from typing import Literal

from failback.operator.kinds.base import Model, Named


class Acl(Model):
    """Access control: requests are checked by accounts, as ACL of RocketMQ 4.9 does."""

    secret_ref: Named
    """Secret of this namespace with plain_acl.yml, the accounts, and tools.yml, the key of an
    account with admin: true, by which the brokers sign their own requests. Read again when it
    changes."""
    mode: Literal["Off", "Warn", "Enforce"] = "Enforce"
    """Enforce: refuse what the accounts do not allow. Warn: only count it in metrics. "Off" (in
    quotes: a bare Off is false in YAML 1.1): check nothing. Changed live. Engine Apache has no
    Warn, and restarts for each change. The field may be removed once the mode is Off."""


class Tls(Model):
    """TLS on all ports but those of health and metrics."""

    secret_ref: Named
    """Secret of this namespace with tls.crt, tls.key and ca.crt, as cert-manager makes it. Read
    again when it changes."""
    mode: Literal["Disabled", "Permissive", "Enforcing"] = "Permissive"
    """Permissive: take plain connections, too. Enforcing: take none. Disabled: take only plain
    ones. Changed live; engine Apache restarts. The field may be removed once the mode is
    Disabled."""
    client_auth: Literal["None", "Optional", "Require"] = "None"
    """Whether peers are asked for a certificate of ca.crt. Require refuses those without. A
    running cluster goes over Optional."""

    def settings(self, prefix: str = "") -> dict[str, str]:
        """Return the names and values of tls.properties.

        Args:
            prefix: Before the names of the Secret's files.
        """
        own = {"certPath": f"{prefix}tls.crt", "keyPath": f"{prefix}tls.key"}
        trusted = f"{prefix}ca.crt"
        found = {f"tls.server.{key}": path for key, path in own.items()}
        if self.client_auth != "None":
            found |= {f"tls.client.{key}": path for key, path in own.items()}
        return {
            **found,
            "tls.server.trustCertPath": trusted,
            "tls.server.authClient": "true",
            "tls.server.need.client.auth": self.client_auth.lower(),
            "tls.client.trustCertPath": trusted,
            "tls.client.authServer": "true",
            "tls.test.mode.enable": "false",
        }
