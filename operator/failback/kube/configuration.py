"""Where the API server is and as whom to ask: the pod's own account, else the kubeconfig."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any, Final

from kubernetes import client, config
from kubernetes.config.config_exception import ConfigException

from failback.kube.errors import ApiError

TOKEN_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
_config: Any = config  # has no types


def configuration_of(kubeconfig: str | None = None) -> Any:
    """Return the client's configuration.

    Args:
        kubeconfig: A file to use in any case; ``None`` = the pod's account inside a cluster, else
            the user's own file.

    Raises:
        ApiError: There is neither.
    """
    found: Any = client.Configuration()
    try:
        if kubeconfig is None and TOKEN_FILE.exists():
            _config.load_incluster_config(client_configuration=found)
        else:
            _config.load_kube_config(kubeconfig, client_configuration=found)
    except (ConfigException, OSError) as error:
        raise ApiError("find", "the API server", 0, "NotConfigured", str(error)) from error
    return found


def tls_of(configuration: Any) -> ssl.SSLContext:
    """Return the TLS context that a client's configuration asks for.

    Raises:
        ApiError: A certificate or key that it names cannot be read.
    """
    try:
        context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
        if configuration.cert_file:
            context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    except OSError as error:
        raise ApiError("find", "the API server", 0, "NotConfigured", str(error)) from error
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
