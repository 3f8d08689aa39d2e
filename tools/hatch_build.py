"""What building a wheel does beside packing: compiles the kernels, fetches the plots' script.

``pip install .`` and ``make dist`` come here. Neither is needed. Without a compiler the wheel has
no kernels and fits every machine; without a network pages carry a larger script. Both are said,
which pip shows with ``--verbose``. ``FAILBACK_KERNELS=off`` leaves the kernels out.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

TOOLS = Path(__file__).resolve().parent
CONDITIONS = TOOLS.parent / "docs" / "reference" / "conditions.md"
"""What `kubectl failback why` explains reasons with."""
WHERE = "failback/broker"
"""Where the kernels are imported from, in a wheel."""


class BuildHook(BuildHookInterface[Any]):
    """Called by hatchling for each wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":  # tools/setup.py puts both into the tree
            return
        if CONDITIONS.is_file():  # an image's build brings only what it needs
            build_data["force_include"][str(CONDITIONS)] = "failback/cli/data/conditions.md"
        self._fetch_script()
        if os.environ.get("FAILBACK_KERNELS") != "off":
            self._compile(build_data)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        scratch = build_data.pop("kernels_scratch", None)
        if scratch is not None:
            scratch.cleanup()

    def _compile(self, build_data: dict[str, Any]) -> None:
        native = _tool("build_native")
        scratch = tempfile.TemporaryDirectory(prefix="failback-kernels-")
        try:
            module = native.build(Path(scratch.name))
        except native.CannotBuild as reason:
            scratch.cleanup()
            self.app.display_warning(f"the broker runs without compiled kernels: {reason}")
            return
        self.app.display_info(f"compiled kernels: {module.name}")
        build_data["kernels_scratch"] = scratch
        build_data["force_include"][str(module)] = f"{WHERE}/{module.name}"
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def _fetch_script(self) -> None:
        if not (TOOLS / "setup_plotly.py").exists():  # an image's build brings only what it needs
            return
        plotly = _tool("setup_plotly")
        try:
            plotly.fetch(npm=shutil.which("npm"))
        except (plotly.CannotFetch, OSError) as reason:
            self.app.display_warning(f"pages carry the whole of plotly.js: {reason}")


def _tool(name: str) -> ModuleType:
    """A module beside this one: the folder is no package while a wheel is built."""
    spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
