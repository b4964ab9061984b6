"""``lakelog recover``: recovers a store after any stop, and reports findings and actions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from lakelog.recovery.report import RecoveryReport
from lakelog_cli.exitcodes import FOUND
from lakelog_cli.findings import recovery_lines, recovery_row
from lakelog_cli.opening import assignment
from lakelog_cli.options import AsJson, Assignments, BrokerConf, SettingsFile, StorePath
from lakelog_cli.output import progress, write_lines
from lakelog_cli.rows.repairs import RecoverRow
from lakelog_cli.schema import prints
from lakelog_doctor.recover import recover as recover_store


@prints(RecoverRow)
def recover(
    store: StorePath,
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing; print the plan.")
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Read the whole log, not only its end.")
    ] = False,
    on_damage: Annotated[
        Literal["skip", "refuse", "truncate"] | None,
        typer.Option(
            "--on-damage",
            help="Whole records behind damage: keep them, stop, or cut the log at the damage.",
        ),
    ] = None,
    as_json: AsJson = False,
    broker_conf: BrokerConf = None,
    settings: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Recover a store after any stop, complete its queues and index, and leave a clean stop.

    Cut bytes are kept in lakelog/quarantine/ of the store. Damage with whole records behind it
    stays in the log, and reads skip it; the exit code is then 1. It is also 1 if durable records at
    the end of the log are missing.
    """
    given: dict[str, Any] = dict(map(assignment, assignments or ()))
    if on_damage is not None:
        given["on_damage"] = on_damage
    with progress("recovering") as advance:
        report = recover_store(
            store,
            dry_run=dry_run,
            full=full,
            progress=advance,
            settings=settings,
            broker_conf=broker_conf,
            **given,
        )
    if as_json:
        write_lines([{"dry_run": dry_run, **recovery_row(report)}])
    else:
        typer.echo("\n".join(_lines(store, report, dry_run=dry_run)))
    if report.damage or report.missing:
        raise typer.Exit(FOUND)


def _lines(store: Path, report: RecoveryReport, *, dry_run: bool) -> list[str]:
    following = _next(report, dry_run=dry_run)
    return [*recovery_lines(store, report, dry_run=dry_run), f"  next      {following}"]


def _next(report: RecoveryReport, *, dry_run: bool) -> str:
    """The next step for the user."""
    if dry_run:
        return "nothing was changed; `lakelog recover` without --dry-run does it"
    if report.damage:
        return (
            "`lakelog repair` puts records in the place of the damage, without which RocketMQ "
            "would cut the log there"
        )
    if report.missing:
        return (
            "bring the missing files back from a copy of the store if there is one; the log goes "
            "on at its end, and gives their queue offsets again (lakelog/missing.json has them)"
        )
    if not report.read_all:
        return (
            f"nothing; read from {report.read_from} on; earlier segments were not read: "
            "`lakelog verify` reads all"
        )
    return "nothing; the store was closed cleanly, and can be opened by lakelog and by RocketMQ"
