"""A broker that dies by SIGKILL between two steps of one persist of its consumer offsets.

``python dying_broker.py TEXT MARK -c broker.conf``: it dies when the old ``consumerOffset.json`` is
deleted and the new one, which contains TEXT, has not got its name yet. Once: before it dies it
creates the file MARK, and does not die while that is there.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from failback.broker.__main__ import main
from failback.broker.metadata import json_config


class DyingFiles(json_config.ConfigFiles):
    """Renames, or is killed before."""

    def __init__(self, text: str, mark: Path) -> None:
        self._text = text
        self._mark = mark

    def rename(self, source: Path, target: Path) -> None:
        is_it = target.name == "consumerOffset.json" and self._text in source.read_text()
        if is_it and not self._mark.exists():
            assert not target.exists(), "the old file is there still"
            self._mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        super().rename(source, target)


if __name__ == "__main__":
    dying = DyingFiles(sys.argv[1], Path(sys.argv[2]))
    json_config._FILES.rename = dying.rename  # type: ignore[method-assign]
    sys.exit(main(sys.argv[3:]))
