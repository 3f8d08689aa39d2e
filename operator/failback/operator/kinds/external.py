"""How clients outside the Kubernetes cluster reach brokers and name servers."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from failback.operator.kinds.base import AnnotationValue, Model

EXTERNAL_WORDS: Final = ("cluster", "pair", "ordinal", "namespace")
"""What a template of addresses may have filled in."""
TEMPLATE: Final = rf"^([a-zA-Z0-9.-]|\{{({'|'.join(EXTERNAL_WORDS)})\}})+$"
PORTS_OF_PAIR: Final = 16
PORTS_OF_MEMBER: Final = 4
"""A broker takes its port, the one 2 below and the one above: pairs have at most 4 members."""

Host = Annotated[str, Field(pattern=r"^[a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?$", max_length=253)]


class External(Model):
    """How clients outside the Kubernetes cluster reach the brokers, each under an address of its
    own. Members replicate inside."""

    type: Literal["LoadBalancer", "NodePort", "Template"]
    """LoadBalancer: a Service per member, whose address is read back and announced. NodePort: a
    Service per member on ports of the nodes. Template: addresses that somebody else makes."""
    template: str | None = Field(default=None, min_length=1, max_length=253, pattern=TEMPLATE)
    """Host name for type Template, another one for each member. {cluster} {pair} {ordinal}
    {namespace} are filled in; there are no other words."""
    node_addresses: list[Host] | None = Field(default=None, min_length=1, max_length=64)
    """Addresses of nodes, or one in front of them, for type NodePort. Members take turns."""
    first_node_port: int | None = Field(default=None, ge=1028, le=60000)
    """For type NodePort. Member m of pair p listens on, and announces, this + 16 p + 4 m; the
    Service takes that port of every node and the one 2 below it. Immutable."""
    annotations: dict[str, AnnotationValue] = Field(default={}, max_length=32)
    """Annotations of the Services, by which clouds choose the kind of load balancer."""


class NameServerExternal(Model):
    """How clients outside the Kubernetes cluster reach the name servers: one Service for all."""

    type: Literal["LoadBalancer", "NodePort"]
    """LoadBalancer: the address is read back into the status. NodePort: a port of the nodes."""
    node_addresses: list[Host] | None = Field(default=None, min_length=1, max_length=64)
    """Addresses of nodes, or one in front of them, for type NodePort: the status lists them."""
    node_port: int | None = Field(default=None, ge=1, le=65535)
    """The port of the nodes, for type NodePort."""
    annotations: dict[str, AnnotationValue] = Field(default={}, max_length=32)
    """Annotations of the Service, by which clouds choose the kind of load balancer."""
