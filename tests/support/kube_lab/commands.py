"""kubectl and helm as a user runs them."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.setup_kube import fetch_tools

from tests.support.common.polling import SCALE


@dataclass(frozen=True, slots=True)
class Completed:
    """How a command ended."""

    code: int
    out: str
    err: str


class CommandFailed(AssertionError):
    """A command that should have worked did not."""


class Commands:
    """Runs kubectl and helm with one kubeconfig and one namespace."""

    def __init__(self, kubeconfig: Path, namespace: str, folder: Path) -> None:
        self._kubeconfig = kubeconfig
        self._namespace = namespace
        self._folder = folder

    def environment(self) -> dict[str, str]:
        """Return variables with which both programs find the lab and leave no file elsewhere."""
        homes = {
            f"HELM_{name}_HOME": str(self._folder / "helm" / name.lower())
            for name in ("CACHE", "CONFIG", "DATA")
        }
        own = {"KUBECONFIG": str(self._kubeconfig), "KUBECACHEDIR": str(self._folder / "kubecache")}
        return {**os.environ, **own, **homes}

    def kubectl(self, *arguments: str, **options: Any) -> Completed:
        """Run ``kubectl -n NAMESPACE ARGUMENTS``; options as for :meth:`run`."""
        return self.run("kubectl", "-n", self._namespace, *arguments, **options)

    def helm(self, *arguments: str, **options: Any) -> Completed:
        """Run ``helm --namespace NAMESPACE ARGUMENTS``; options as for :meth:`run`."""
        return self.run("helm", "--namespace", self._namespace, *arguments, **options)

    def run(
        self,
        program: str,
        *arguments: str,
        stdin: str = "",
        check: bool = True,
        seconds: float = 300,
    ) -> Completed:
        """Run one of the two to its end.

        Raises:
            CommandFailed: It ended with another code than 0, unless ``check`` is false.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            [str(fetch_tools() / program), *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            env=self.environment(),
            timeout=seconds * SCALE,
            check=False,
        )
        if check and done.returncode:
            shown = " ".join([program, *arguments])
            raise CommandFailed(f"{shown}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return Completed(done.returncode, done.stdout, done.stderr)
