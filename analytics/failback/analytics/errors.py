"""What ``failback report`` refuses."""

from pathlib import Path


class ReportInputError(Exception):
    """The run folder cannot be reported on; one sentence names the file or column. Exit code 2."""

    exit_code = 2

    def __init__(self, problem: str, path: Path | str | None = None) -> None:
        self.problem = problem
        self.path = path
        super().__init__(f"{path}: {problem}" if path is not None else problem)


class StoreUnusable(ReportInputError, OSError):
    """An object store did not do what it was asked: it is down, it refuses, or has no such bucket.

    An ``OSError`` as well, which is what everything that stores files is prepared for.
    """


class EngineUnavailable(ReportInputError):
    """Spark was asked for and cannot start here; the message is what to install."""
