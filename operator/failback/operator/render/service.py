"""Services: stable names of pods, and one address for clients that take only one."""

from __future__ import annotations

from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.kinds.name_server import NameServer
from failback.operator.render import common
from failback.operator.render.config import service_name
from failback.operator.render.context import Context, Object
from failback.operator.render.nameserver import name_server_labels, selector, statefulset_name


def broker_service(cluster: BrokerCluster, context: Context) -> Object:
    """Return the headless Service of all brokers; names resolve before pods are ready."""
    port = cluster.spec.networking.listen_port
    ports = {"remoting": port, "fast": port - 2, "ha": port + 1, "http": common.HTTP_PORT}
    marks = common.labels(cluster, "broker", cluster=cluster.name)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": common.metadata(cluster, service_name(cluster), context, marks),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {
                "failback.dev/cluster": cluster.name,
                "app.kubernetes.io/component": "broker",
            },
            "ports": [{"name": name, "port": number} for name, number in ports.items()],
        },
    }


def name_server_services(name_server: NameServer, context: Context) -> list[Object]:
    """Return the headless Service of the replicas, and the one address of the ready ones."""
    marks = name_server_labels(name_server)
    port = name_server.spec.port
    headless: Object = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": common.metadata(name_server, statefulset_name(name_server), context, marks),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": selector(name_server),
            "ports": [
                {"name": "remoting", "port": port},
                {"name": "http", "port": common.HTTP_PORT},
            ],
        },
    }
    one: Object = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": common.metadata(name_server, f"{name_server.name}-namesrv", context, marks),
        "spec": {
            "selector": selector(name_server),
            "ports": [{"name": "remoting", "port": port}],
        },
    }
    return [headless, one]
