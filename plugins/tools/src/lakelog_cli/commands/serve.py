"""``lakelog serve``: owns a store until it is stopped, with services and followers beside it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

import typer

from lakelog.errors import LakelogError
from lakelog_cli import exitcodes
from lakelog_cli.options import GivenStore, LogFormat
from lakelog_daemon import daemon, logs
from lakelog_daemon.plan import ServePlan

_LOG: Final = logging.getLogger("lakelog.serve")
LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]
_CODES: Final = {daemon.Ending.STOPPED: exitcodes.OK, daemon.Ending.FAILED: exitcodes.REFUSED}


def serve(
    store: GivenStore,
    services: Annotated[
        list[str] | None,
        typer.Option(
            "--service",
            metavar="NAME=COMMAND",
            help="A program to run beside the store; {store} in it is the directory. Repeatable.",
        ),
    ] = None,
    log_format: LogFormat = "text",
    log_level: Annotated[LogLevel, typer.Option(help="Lowest level of log lines.")] = "info",
    log_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File of the log; default stderr. SIGHUP reopens it."),
    ] = None,
) -> None:
    """Own a store until SIGTERM or Ctrl-C; a missing store is made.

    Other processes can open the store meanwhile and put into it. The followers of the settings, the
    programs of serve.services, and each --service run beside it. A program that ends or hangs is
    started again, after increasing pauses; puts continue. A stop takes at most
    serve.stop_timeout_ms; a second signal stops at once. lakelog/serve.json has the state of all
    programs: see 'lakelog top'. systemd is notified when the store is open (Type=notify).

    Exit codes: 0 stopped; 3 another process owns the store; 4 a write or sync failed; 6 not stopped
    in time, so that the next owner recovers the store.
    """
    plan = ServePlan.make(
        store.path,
        services=services or (),
        settings=store.settings,
        broker_conf=store.broker_conf,
        arguments=store.given,
    )
    log = _start_log(log_file, log_level, as_json=log_format == "json")
    raise typer.Exit(served(plan, log))


def served(plan: ServePlan, log: logs.LogWriter) -> int:
    """Serve until a stop is requested; return the exit code."""
    try:
        return _CODES[daemon.runner_of(plan, log, exitcodes.LATE).run()]
    except LakelogError as error:
        _LOG.critical("%s", error, extra=logs.fields("not_served"))
        return exitcodes.of(error)
    except Exception as error:
        _LOG.critical("%s", error, exc_info=error, extra=logs.fields("broken"))
        raise
    finally:
        logs.stop_log(log)


def _start_log(file: Path | None, level: LogLevel, *, as_json: bool) -> logs.LogWriter:
    try:
        return logs.start_log(level.upper(), file, as_json=as_json)
    except OSError as error:
        raise typer.BadParameter(f"--log-file {file}: {error.strerror}") from None
