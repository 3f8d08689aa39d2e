"""The names by which Chaos Toolkit finds actions, probes, controls and tolerances."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from chaoslib.exceptions import ActivityFailed

from failback.chaos.faults.catalogue import FAULTS
from failback.chaos.toolkit import actions


def action_of(name: str) -> Callable[..., Any]:
    found: Callable[..., Any] = getattr(actions, name)
    return found


def test_each_fault_and_each_undo_has_its_action() -> None:
    for fault in FAULTS:
        if fault.inject is not None:
            assert inspect.unwrap(action_of(fault.kind.action)) is fault.inject
        if fault.undo is not None and fault.undo.action:
            assert action_of(fault.undo.action).__name__ == fault.undo.action


def test_every_parameter_of_a_fault_is_an_argument_of_its_action() -> None:
    for fault in FAULTS:
        if fault.kind.parts:
            assert fault.inject is None
            continue
        shown = inspect.signature(action_of(fault.kind.action)).parameters
        wanted = {parameter.argument for parameter in fault.kind.parameters} | set(fault.kind.fixed)
        assert wanted | {"at_seconds", "fid", "configuration", "secrets"} <= set(shown)
        assert "session" not in shown


def test_an_action_without_a_run_fails_as_chaos_toolkit_wants_it() -> None:
    for name in {*actions.__all__} - {"undo_outstanding"}:
        act = action_of(name)
        arguments: dict[str, Any] = {
            each.name: "x"
            for each in inspect.signature(act).parameters.values()
            if each.default is inspect.Parameter.empty
        }
        with pytest.raises(ActivityFailed, match="no run is open"):
            act(**arguments, configuration={"run_dir": "/nowhere"})
