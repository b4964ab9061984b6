"""``lakelog query``: messages of a topic by key."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from lakelog_cli import times
from lakelog_cli.exitcodes import FOUND
from lakelog_cli.messagelines import write_messages
from lakelog_cli.opening import check_name, open_for
from lakelog_cli.options import (
    AsJson,
    Assignments,
    BrokerConf,
    SettingsFile,
    StorePath,
    Topic,
    a_time,
)
from lakelog_cli.output import shown
from lakelog_cli.rows.queues import MessageRow
from lakelog_cli.schema import prints

EPILOG: Final = times.HELP


@prints(MessageRow)
def query(  # noqa: PLR0913  # each argument is an option of the command
    store: StorePath,
    topic: Topic,
    *,
    key: Annotated[str, typer.Option(help="One of the message's keys, or its unique key.")],
    since: Annotated[
        int | None, typer.Option(parser=a_time, metavar="TIME", help="Earliest store time.")
    ] = None,
    until: Annotated[
        int | None, typer.Option(parser=a_time, metavar="TIME", help="Latest store time.")
    ] = None,
    most: Annotated[int, typer.Option("--max", min=1, help="Most messages to print.")] = 64,
    as_json: AsJson = False,
    broker_conf: BrokerConf = None,
    settings: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Print the messages with a key, the newest first.

    If no message has the key, stderr states that, and the exit code is 1; an unknown topic is
    wrong usage.
    """
    if since is not None and until is not None and since > until:
        raise typer.BadParameter("--since is later than --until")
    with open_for("read", store, broker_conf, settings, assignments) as opened:
        found = opened.query(topic, key, since_ms=since, until_ms=until, max_messages=most)
        if not found:
            check_name("topic", topic, opened.topics())
            typer.echo(f"no message has the key '{shown(key)}' there", err=True)
            raise typer.Exit(FOUND)
        write_messages(found, as_json=as_json)
