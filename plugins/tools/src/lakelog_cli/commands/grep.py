"""``lakelog grep``: messages by text, topic, tag, key and time."""

from __future__ import annotations

import re
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Final

import typer

from lakelog_cli import times
from lakelog_cli.exitcodes import FOUND
from lakelog_cli.messagelines import write_messages
from lakelog_cli.opening import open_for
from lakelog_cli.options import AsJson, Assignments, BrokerConf, SettingsFile, a_time
from lakelog_cli.output import write_lines
from lakelog_cli.printed import prints
from lakelog_cli.rows.queues import CountRow, MessageRow
from lakelog_cli.searching import Search, search
from lakelog_cli.shown import shown
from lakelog_cli.walk import DamageCounter

EPILOG: Final = times.HELP


@prints(MessageRow, CountRow)
def grep(  # noqa: PLR0913  # each argument is an option of the command
    pattern: Annotated[
        str,
        typer.Argument(metavar="TEXT", help="The text; with -e an expression; '' for any body."),
    ],
    stores: Annotated[
        list[Path], typer.Argument(metavar="STORE...", help="One or more store directories.")
    ],
    *,
    is_regex: Annotated[
        bool, typer.Option("-e", "--regex", help="TEXT is a regular expression of Python.")
    ] = False,
    ignore_case: Annotated[
        bool, typer.Option("-i", "--ignore-case", help="Ignore the case of ASCII letters.")
    ] = False,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", help="Only this topic; may be repeated.")
    ] = None,
    tag: Annotated[str | None, typer.Option("--tag", help="Only messages with this tag.")] = None,
    key: Annotated[str | None, typer.Option("--key", help="Only messages with this key.")] = None,
    since: Annotated[
        int | None, typer.Option(parser=a_time, metavar="TIME", help="Earliest store time.")
    ] = None,
    until: Annotated[
        int | None, typer.Option(parser=a_time, metavar="TIME", help="Latest store time.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Most messages to print.")] = None,
    count: Annotated[bool, typer.Option("-c", "--count", help="Print only the number.")] = False,
    processes: Annotated[
        int | None,
        typer.Option(
            "--processes", min=1, help="Number of reading processes; default one per core."
        ),
    ] = None,
    as_json: AsJson = False,
    broker_conf: BrokerConf = None,
    settings: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Print the messages whose bodies contain a text, in the log's order.

    Only the log is read, so queues and index may be missing; the stores may be in use, or left by a
    crashed broker. Compressed bodies are decompressed. The exit code is 1 if no message matches,
    or if damage was found.
    """
    wanted = Search(
        _compiled(pattern, is_regex=is_regex, ignore_case=ignore_case),
        not is_regex,
        frozenset(topic or ()),
        tag,
        key,
        since,
        until,
    )
    damages, found = DamageCounter(), 0
    for store in stores:
        left = None if limit is None else limit - found
        given = ("read", store, broker_conf, settings, assignments)
        again = partial(open_for, *given, notes=False)
        with open_for(*given) as opened:
            places = islice(search(opened, again, wanted, processes, damages), left)
            if count:
                number = sum(1 for _ in places)
                _print_count(store, number, is_single=len(stores) == 1, as_json=as_json)
                found += number
                continue
            for message in map(opened.look_up, places):
                found += 1
                write_messages([message], as_json=as_json)
    if not found and not count:
        typer.echo("no message matches", err=True)
    if damages.count or not found:
        raise typer.Exit(FOUND)


def _print_count(store: Path, number: int, *, is_single: bool, as_json: bool) -> None:
    if as_json:
        write_lines([{"store": str(store), "messages": number}])
    else:
        typer.echo(str(number) if is_single else f"{shown(str(store))}: {number}")


def _compiled(text: str, *, is_regex: bool, ignore_case: bool) -> re.Pattern[bytes] | None:
    """The pattern over bytes; ``None`` for an empty text, which every body has."""
    if not text:
        return None
    raw = text.encode("utf-8", "surrogateescape")
    try:
        return re.compile(raw if is_regex else re.escape(raw), re.IGNORECASE if ignore_case else 0)
    except re.error as error:
        raise typer.BadParameter(f"{text!r} is no regular expression: {error}") from None
