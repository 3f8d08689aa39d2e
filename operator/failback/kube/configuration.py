"""Where the API server is and as whom to ask: the pod's own account, else the kubeconfig."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any, Final

import yaml
from kubernetes import client, config
from kubernetes.config.config_exception import ConfigException

from failback.kube.errors import ApiError

_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_FILE: Final = _ACCOUNT / "token"
_config: Any = config  # has no types
_UNREADABLE: Final = (ConfigException, OSError, ValueError, yaml.YAMLError)
"""Errors of a file that is missing, is no YAML, or lacks a part."""


def configuration_of(kubeconfig: str | None = None, context: str | None = None) -> Any:
    """Return the client's configuration.

    Args:
        kubeconfig: A file to use in any case; ``None`` = the pod's account inside a cluster, else
            the user's own file.
        context: A context of that file; ``None`` = its current one.

    Raises:
        ApiError: There is neither.
    """
    found: Any = client.Configuration()
    try:
        if _is_of_a_pod(kubeconfig, context):
            _config.load_incluster_config(client_configuration=found)
        else:
            _config.load_kube_config(kubeconfig, context, client_configuration=found)
    except _UNREADABLE as error:
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


def namespace_of(kubeconfig: str | None = None, context: str | None = None) -> str:
    """Return the namespace that kubectl would use; arguments as of :func:`configuration_of`.

    Raises:
        ApiError: There is no file, or no such context in it.
    """
    try:
        if _is_of_a_pod(kubeconfig, context):
            return (_ACCOUNT / "namespace").read_text(encoding="utf-8").strip()
        contexts, current = _config.list_kube_config_contexts(kubeconfig)
    except _UNREADABLE as error:
        raise ApiError("find", "the API server", 0, "NotConfigured", str(error)) from error
    wanted = context or current["name"]
    found = next((each for each in contexts if each["name"] == wanted), current)
    return str(found["context"].get("namespace") or "default")


def _is_of_a_pod(kubeconfig: str | None, context: str | None) -> bool:
    return kubeconfig is None and context is None and TOKEN_FILE.exists()
