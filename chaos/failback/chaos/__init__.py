"""The harness: fault injection on top of Chaos Toolkit, with a proof for every fault.

It knows the cluster through its wire and the runtime's control socket; it imports neither the
broker nor the operator.
"""

from __future__ import annotations

from typing import Any

__version__ = "0.2.0"

__all__ = ["__version__", "discover"]


def discover(discover_system: bool = True) -> Any:
    """Return our actions and probes as Chaos Toolkit describes extensions.

    ``chaos discover --no-install failback.chaos`` calls it: ``failback_chaos.egg-info`` names this
    package to Chaos Toolkit, which asks for a distribution of the extension's name.
    """
    from chaoslib.discovery.discover import (
        discover_actions,
        discover_probes,
        initialize_discovery_result,
    )

    discovery = initialize_discovery_result("failback-chaos", __version__, "rocketmq")
    discovery["activities"].extend(discover_actions("failback.chaos.toolkit.actions"))
    discovery["activities"].extend(discover_probes("failback.chaos.toolkit.probes"))
    return discovery
