"""The commands that start before typer is imported.

A broker should not carry the memory of a command line, and an init container should not wait
for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Main = Callable[[Sequence[str]], int]


def light_command(words: list[str]) -> tuple[Main, list[str]] | None:
    """Return what runs without typer, with its arguments, or ``None``."""
    if words[:1] == ["broker"]:
        from failback.broker.__main__ import main as broker

        return broker, words[1:]
    if words[:1] == ["namesrv"]:
        from failback.namesrv.__main__ import main as namesrv

        return namesrv, words[1:]
    if words[:2] == ["tools", "install-conf"]:
        from failback.cli.container.install_conf import main as install_conf

        return install_conf, words[2:]
    if words[:2] == ["tools", "verify-prefix"]:
        from failback.cli.container.verify_prefix import main as verify_prefix

        return verify_prefix, words[2:]
    if words[:1] == ["workload"]:
        from failback.chaos.workload import main as workload

        return workload, words[1:]
    if words[:1] in (["executor"], ["driver"]):
        from failback.cli.container import spark_pod

        return getattr(spark_pod, words[0]), words[1:]
    return None
