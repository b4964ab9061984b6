"""``lakelog lake infer-schema``: a JSON Schema for the bodies of a topic."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lakelog_cli.options import AlwaysJson
from lakelog_cli.output import print_line, prints, write_document


@prints(is_document=True, is_always=True)
def infer_schema(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="The store directory.")],
    topic: Annotated[str, typer.Option(help="The topic of the bodies.")],
    messages: Annotated[int, typer.Option(min=1, help="Number of messages to read.")] = 10000,
    times: Annotated[
        bool,
        typer.Option("--times/--no-times", help="Infer times and dates from text."),
    ] = True,
    _as_json: AlwaysJson = True,
) -> None:
    """Print a JSON Schema of the bodies of a topic: review it, keep it, give it as json:FILE.

    Fields without a single type are left out, and listed on stderr.
    """
    from lakelog_lake.bodies.infer import infer_topic

    found = infer_topic(store.absolute(), topic, messages, times=times)
    write_document(found.schema)
    others = f", {found.others} others are not" if found.others else ""
    print_line(f"{found.read} bodies are JSON objects{others}", err=True)
    for field in found.left_out:
        print_line(f"left out {field}", err=True)
