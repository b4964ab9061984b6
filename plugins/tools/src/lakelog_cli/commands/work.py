"""``lakelog work``: handles the messages of a consumer group in processes."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Annotated, Any, Final

import typer

from lakelog_cli import options, output
from lakelog_queues.consumers.consumer import EARLIEST
from lakelog_queues.groups.pool import WorkProgress
from lakelog_queues.groups.working import CONCURRENCY, imported

_INTERVAL_MS: Final = 60_000
_INTERVAL_ON_TERMINAL_MS: Final = 5_000


def work(  # noqa: PLR0913  # each argument is an option of the command
    store: options.GivenStore,
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="One or more topics.")],
    function: Annotated[
        str,
        typer.Argument(metavar="MODULE:FUNCTION", help="It is called with each message."),
    ],
    *,
    group: Annotated[str, typer.Option(metavar="GROUP", help="The consumer group.")],
    workers: Annotated[
        int | None,
        typer.Option(min=0, help="Number of processes; default one per core; 0: in this one."),
    ] = None,
    batch: Annotated[
        int | None, typer.Option(min=1, help="Call it with lists of so many messages at most.")
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(
            min=1, help=f"Calls of an 'async def' at a time per process; default {CONCURRENCY}."
        ),
    ] = None,
    max_attempts: Annotated[
        int | None,
        typer.Option(min=1, help="Hand-outs before a message is a dead letter; default 17."),
    ] = None,
    time_limit_ms: Annotated[
        int | None, typer.Option(min=1, help="Longest time of a call; default none.")
    ] = None,
    stop_timeout_ms: Annotated[
        int, typer.Option(min=0, help="Longest time of a stop; then the processes are killed.")
    ] = 30_000,
    until_empty: Annotated[
        bool, typer.Option("--until-empty", help="End when all messages are consumed.")
    ] = False,
    start: options.Start = EARLIEST,
    tags: options.Tags = None,
) -> None:
    """Call a function with each message of a consumer group, in processes, until SIGTERM or Ctrl-C.

    A module is also found in the present directory. A message is acknowledged when the function has
    returned; if it raises, the message comes again after a delay. A stop lets the processes finish;
    a second signal kills them. Progress is printed on stderr.
    """
    if os.getcwd() not in sys.path:  # as for a program of Python; the processes get the same
        sys.path.insert(0, os.getcwd())
    imported(function)
    more: dict[str, Any] = {} if max_attempts is None else {"max_attempts": max_attempts}
    is_shown = output.is_terminal(sys.stderr)
    line = _line()
    with store.change() as opened:
        done = opened.work(
            topics,
            function,
            group=group,
            workers=workers,
            batch=batch,
            concurrency=concurrency,
            time_limit_ms=time_limit_ms,
            stop_timeout_ms=stop_timeout_ms,
            until_empty=until_empty,
            on_progress=line,
            progress_interval_ms=_INTERVAL_ON_TERMINAL_MS if is_shown else _INTERVAL_MS,
            start=options.start_position(start),
            tags=tags,
            **more,
        )
    line(done)


def _line() -> Callable[[WorkProgress], None]:
    """Return a function that prints a line, with the rate since the last one."""
    last = time.monotonic(), 0

    def show(done: WorkProgress) -> None:
        nonlocal last
        now_s, (before_s, before) = time.monotonic(), last
        rate = (done.handled - before) / max(now_s - before_s, 0.001)
        last = now_s, done.handled
        output.print_line(
            f"handled {done.handled:,} ({rate:,.0f}/s), failed {done.failed:,}, dead letters "
            f"{done.dead_letters:,}, lag {done.lag:,}, in flight {done.in_flight:,}, workers "
            f"{done.workers}, restarted {done.restarts}",
            err=True,
        )

    return show
