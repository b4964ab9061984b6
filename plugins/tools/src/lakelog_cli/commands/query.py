"""``lakelog query``: messages of a topic by key."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from lakelog import times
from lakelog_cli import exitcodes, options, output

EPILOG: Final = times.HELP


@output.prints(output.MessageRow)
def query(  # each argument is an option of the command
    store: options.GivenStore,
    topic: options.Topic,
    *,
    key: Annotated[str, typer.Option(help="One of the message's keys, or its unique key.")],
    since: options.Since = None,
    until: options.Until = None,
    most: Annotated[int, typer.Option("--max", min=1, help="Most messages to print.")] = 64,
    as_json: options.AsJson = False,
) -> None:
    """Print the messages with a key, the newest first.

    If no message has the key, stderr states that, and the exit code is 1; an unknown topic is
    wrong usage.
    """
    if since is not None and until is not None and since > until:
        raise typer.BadParameter("--since is later than --until")
    with store.read() as opened:
        found = opened.query(topic, key, since_ms=since, until_ms=until, max_messages=most)
        if not output.write_messages(found, as_json=as_json):
            options.check_name("topic", topic, opened.topics())
            output.print_line(f"no message has the key '{key}' there", err=True)
            raise typer.Exit(exitcodes.FOUND)
