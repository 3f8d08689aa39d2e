"""``failback operator``: what belongs to the Kubernetes operator."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from failback.cli.shared.commands import command, new_group
from failback.cli.shared.options import option
from failback.cli.shared.output import say


@command("crds", "failback operator crds | kubectl apply -f -")
def crds(
    out: Annotated[
        Path | None,
        option(
            "--out", "FOLDER", "Write one file per kind into this folder (default: print them)."
        ),
    ] = None,
) -> None:
    """Print the CustomResourceDefinitions, or write them as files."""
    from failback.operator.schema.crds import crd_files

    files = crd_files()
    if out is None:
        print("---\n".join(files.values()), end="")
        return
    out.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (out / name).write_text(text, encoding="utf-8")
        say(str(out / name))


app = new_group(
    "The Kubernetes operator and its definitions.",
    crds,
    examples=("failback operator crds --out crds",),
)
