"""Name server and one master as real processes on loopback, with their timers scaled."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Self

from failback.client.remoting.settings import ClientSettings
from tests.support.common.polling import SCALE
from tests.support.net.ports import free_port_block
from tests.support.processes.child_process import (
    TestProcess,
    failback_command,
    failback_environment,
)

NAMESRV_READY = "The Name Server boot success"
BROKER_READY = "boot success"
_PATIENCE: Final = {
    name: getattr(ClientSettings(), name) * SCALE
    for name in ("api_timeout_ms", "route_lock_wait_ms")
}


class ClusterProcesses:
    """``with ClusterProcesses(tmp_path) as cluster``: both are up; both are gone afterwards.

    Args:
        time_scale: For brokers, name server and the settings handed out.
    """

    def __init__(self, folder: Path, *, time_scale: float = 0.1, **broker: Any) -> None:
        self.time_scale = time_scale
        first = free_port_block(8)
        self.namesrv_addr = f"127.0.0.1:{first}"
        self.broker_addr = f"127.0.0.1:{first + 4}"
        namesrv_conf, broker_conf = folder / "namesrv.conf", folder / "broker.conf"
        self.broker_root = folder / "store"
        folder.mkdir(parents=True, exist_ok=True)
        _write(
            namesrv_conf,
            listenPort=first,
            bindAddress="127.0.0.1",
            failbackHttpPort=0,
            failbackTimeScale=time_scale,
            kvConfigPath=folder / "kvConfig.json",
        )
        _write(
            broker_conf,
            brokerName="broker-a",
            brokerId=0,
            brokerIP1="127.0.0.1",
            listenPort=first + 4,
            namesrvAddr=self.namesrv_addr,
            storePathRootDir=self.broker_root,
            mappedFileSizeCommitLog=4 * 1024 * 1024,
            failbackHttpPort=0,
            failbackTimeScale=time_scale,
            **broker,
        )
        environment = failback_environment()
        self.namesrv = TestProcess(
            "namesrv",
            failback_command("namesrv", "-c", str(namesrv_conf)),
            folder,
            environment=environment,
        )
        self.broker = TestProcess(
            "broker",
            failback_command("broker", "-c", str(broker_conf)),
            folder,
            environment=environment,
        )

    def __enter__(self) -> Self:
        try:
            self.namesrv.start()
            self.namesrv.wait_for(NAMESRV_READY)
            self.start_broker()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.broker.dispose()
        self.namesrv.dispose()

    def start_broker(self) -> None:
        self.broker.start()
        self.broker.wait_for(BROKER_READY)

    def settings(self, **changes: Any) -> ClientSettings:
        """Return settings of clients; they wait unscaled for answers: a busy machine is as slow."""
        patient = {name: milliseconds / self.time_scale for name, milliseconds in _PATIENCE.items()}
        return ClientSettings(
            namesrv_addrs=(self.namesrv_addr,),
            client_ip="127.0.0.1",
            time_scale=self.time_scale,
            **(patient | changes),
        )


def _write(path: Path, **properties: object) -> None:
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
