"""Commands that are shown to be copied, all made here. Pure."""

from __future__ import annotations

import shlex

from failback.protocol.words.visible import visible


def typed(*words: object) -> str:
    """Return a command as a person types it: a word stays one word, whoever has chosen it.

    What cannot be seen stands as an escape, so that nothing ends the line.
    """
    return shlex.join(visible(str(word)) for word in words)
