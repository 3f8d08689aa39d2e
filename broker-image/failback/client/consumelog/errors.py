"""What can go wrong with the consume log, by who must act."""

from pathlib import Path


class ConsumeLogError(Exception):
    """The log cannot take more rows. A consumer must stop: it may not handle unlogged messages."""

    exit_code = 74  # EX_IOERR: what the workload exits with

    def __init__(self, what: str, path: Path) -> None:
        self.path = path
        super().__init__(f"consume log {path}: {what}")


class BadHotLog(ConsumeLogError):
    """A hot log whose head cannot be read: not ours, or damaged before its first row."""
