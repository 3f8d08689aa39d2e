"""``failback tools``: small commands that containers run."""

from __future__ import annotations

from typing import Annotated

from failback.cli.shared.commands import command, new_group
from failback.cli.shared.options import option
from failback.cli.shared.output import say
from failback.protocol.errors import ConfigError


@command("remove-finalizers")
def remove_finalizers(
    namespace: Annotated[
        list[str] | None, option("--namespace", "NAME", "Where (default: everywhere).")
    ] = None,
    stop: Annotated[
        str, option("--stop", "NAMESPACE/NAME", "Stop this Deployment of the operator first.")
    ] = "",
) -> None:
    """Stop the operator and free its custom resources: before it is uninstalled."""
    from failback.kube.blocking import BlockingKube
    from failback.operator.kubernetes import helm_hooks

    api = BlockingKube.connect()
    if stop:
        helm_hooks.stop_deployment(api, *_namespaced(stop), say)
    count = helm_hooks.remove_finalizers(api, namespace or [], say)
    say(f"{count} finalizers removed")


@command("allow-chaos")
def allow_chaos(
    namespace: Annotated[list[str], option("--namespace", "NAME", "Namespace to label.")],
) -> None:
    """Label namespaces so that experiments may run in them."""
    from failback.kube.blocking import BlockingKube
    from failback.operator.kubernetes import helm_hooks

    helm_hooks.allow_chaos(BlockingKube.connect(), namespace, say)


def _namespaced(text: str) -> tuple[str, str]:
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name):
        raise ConfigError("--stop", f'expected NAMESPACE/NAME, got "{text}"')
    return namespace, name


app = new_group("Small commands that containers run.", remove_finalizers, allow_chaos)
