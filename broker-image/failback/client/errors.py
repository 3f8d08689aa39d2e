"""Errors that a client raises by itself, beside those of the transport and the broker."""

from __future__ import annotations

from failback.protocol.errors import FailbackError


class ClientError(FailbackError):
    """The client can't do what was asked for in its present state or with this input."""


class RouteNotFound(ClientError):
    """No name server gave a route for ``topic`` that has a queue to send to."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"no route info of this topic: {topic}")
        self.topic = topic


class RouteQueryFailed(ClientError):
    """The name server could not be asked for ``topic``; the cached route stays as it was."""

    def __init__(self, topic: str, why: Exception | None = None) -> None:
        told = f": {why}" if why is not None else ""
        super().__init__(f"name server could not be asked for the route of {topic}{told}")
        self.topic = topic


class BrokerUnknown(ClientError):
    """No usable address of ``broker_name`` is known."""

    def __init__(self, broker_name: str) -> None:
        super().__init__(f"the broker[{broker_name}] not exist")
        self.broker_name = broker_name


class SendFailed(ClientError):
    """Every attempt of a send failed; ``__cause__`` is the last failure.

    The message may nevertheless be stored: an attempt that timed out or broke off says nothing.
    """

    def __init__(self, topic: str, attempts: int, brokers: list[str], elapsed_ms: float) -> None:
        super().__init__(
            f"send of a message to {topic} failed after {attempts} attempts"
            f" on {brokers} in {elapsed_ms:.0f} ms"
        )
        self.topic = topic
        self.attempts = attempts
        self.brokers = brokers


class SendCallTimeout(ClientError):
    """The time budget of a send was spent before the next attempt began."""

    def __init__(self, topic: str, elapsed_ms: float) -> None:
        super().__init__(f"send to {topic}: call timeout after {elapsed_ms:.0f} ms")
        self.topic = topic


class MessageInvalid(ClientError):
    """A message, topic or group name breaks a rule of the client; nothing was sent."""


class NotRunning(ClientError):
    """The producer or consumer isn't started, or is already shut down."""
