"""What a run says of itself to the process that started it: an outcome, or an error.

Both cross a pipe as one JSON object. The two ends of that are here, so that they fit each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from failback.chaos.errors import ExitCode, GuardRefused, NotHealed, TargetError
from failback.chaos.run.verdict import Verdict
from failback.common.text import typed
from failback.protocol.errors import ConfigError, FailbackError

OUTCOME_FILE: Final = "outcome.json"
"""In the run folder: the outcome without the digest of the manifest, which covers this file."""
_ERRORS: Final[Mapping[str, tuple[type[FailbackError], tuple[str, ...], ExitCode]]] = {
    "config": (ConfigError, ("field", "problem"), ExitCode.BAD_INPUT),
    "guard": (GuardRefused, ("guard", "why"), ExitCode.GUARD_REFUSED),
    "not-healed": (NotHealed, ("left", "command"), ExitCode.NOT_HEALED),
    "target": (TargetError, ("what", "why"), ExitCode.INCONCLUSIVE),
}
"""By the word for it: an error, the arguments that it is made of, and the exit code."""


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """What the harness can say of a run. The analysis counts the duplicates."""

    run: str
    run_dir: str
    arm: str
    repetition: int
    verdict: str
    exit_code: int
    checks: list[dict[str, str]] = field(default_factory=list)
    faults: list[dict[str, Any]] = field(default_factory=list)
    delivered: dict[str, int] = field(default_factory=dict)
    manifest_sha256: str = ""
    message: str = ""
    """One sentence for people when the run did not pass."""

    @property
    def passed(self) -> bool:
        return self.exit_code == ExitCode.PASS


def outcome_of(reply: Mapping[str, Any], folder: Path) -> RunOutcome:
    """Return what a run's last word tells.

    Raises:
        ConfigError, GuardRefused, NotHealed, TargetError: As in the run's own process.
    """
    error = reply.get("error")
    if error:
        kind, names, _ = _ERRORS.get(error["kind"], _ERRORS["target"])
        raise kind(*(error[name] for name in names))
    if "outcome" in reply:
        return RunOutcome(**reply["outcome"])
    return RunOutcome(
        run="",
        run_dir=str(folder),
        arm="",
        repetition=0,
        verdict=Verdict.INCONCLUSIVE.value,
        exit_code=ExitCode.INCONCLUSIVE,
        message=(
            f"the harness ended with {reply.get('exit_code')}; "
            f"see {folder / 'logs' / 'harness.log'}, then run: "
            + typed("failback", "experiment", "heal", folder)
        ),
    )


def describe_error(error: FailbackError) -> tuple[dict[str, Any], ExitCode]:
    """An error as plain values, and the exit code that it becomes."""
    for word, (kind, names, code) in _ERRORS.items():
        if isinstance(error, kind):
            return {"kind": word, **{name: getattr(error, name) for name in names}}, code
    told = {"kind": "other", "what": type(error).__name__, "why": str(error)}
    return told, ExitCode.INCONCLUSIVE
