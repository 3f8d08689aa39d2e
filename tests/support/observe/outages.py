"""What befalls the pair of a story and its group in most stories, a step after another."""

from __future__ import annotations

from typing import Any

from failback.analytics.observe.observation import Counts
from tests.support.observe.stories import MASTER, SLAVE, Story


def at_work(committed: int = 1000, *, file: int = 900, pause: int = 2) -> Story:
    """A group that commits ``file`` and then ``committed``, on the master and in its copy."""
    story = Story()
    story.store(committed)
    for offset in (file, committed):
        story.commit(offset)
        story.wait(pause)
    return story


def serve(story: Story, reached: int, *, stored: int | None = None) -> None:
    """The master dies, and the group goes on at the slave up to ``reached``."""
    story.kill()
    story.wait(3)
    story.store(reached if stored is None else stored)
    story.commit(reached, at=(SLAVE,))
    story.wait(5)


def come_back(story: Story, file: int, *, after: int = 3) -> None:
    """All members leave; ``after`` seconds later the master is back with what its file held."""
    story.members["billing"] = set()
    story.wait(after)
    story.start(file)
    story.wait(2)


def take_over(story: Story, committed: int) -> None:
    """Another member begins, and commits at the master."""
    story.members["billing"] = {"c"}
    story.wait(2)
    story.commit(committed, at=(MASTER,))
    story.wait(2)


def cost(
    story: Story, group: str = "billing", *, counts: Counts = lambda _back, _group: {}
) -> dict[str, Any]:
    """Return what the only return of the story cost a group; ``counts`` are exact."""
    (returned,) = story.observation.document(counts)["returns"]
    (found,) = (each for each in returned["groups"] if each["group"] == group)
    return dict(found)
