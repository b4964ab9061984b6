"""``lakelog recover``: recovers a store after any stop, and reports findings and actions."""

from __future__ import annotations

from itertools import chain
from typing import Annotated, Literal

import typer

from lakelog.recovery.report import RecoveryReport
from lakelog_cli.findings import RecoveryDocument, recovery_lines, recovery_row
from lakelog_cli.options import AsJson, DryRun, GivenStore
from lakelog_cli.output import exit_if_found, labelled, prints, progress, write_result
from lakelog_doctor.recover import recover as recover_store


class RecoverRow(RecoveryDocument):
    """A recovery.

    :ivar dry_run: whether nothing was changed
    """

    dry_run: bool


@prints(RecoverRow)
def recover(
    store: GivenStore,
    *,
    dry_run: DryRun = False,
    full: Annotated[
        bool, typer.Option("--full", help="Read the whole log, not only its end.")
    ] = False,
    on_damage: Annotated[
        Literal["skip", "refuse", "truncate", "cut-end"] | None,
        typer.Option(
            "--on-damage",
            help="Whole records behind damage: keep them, stop, or cut the log at the damage; "
            "cut-end keeps them, and sets aside an unreadable end that was durable.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Recover a store after any stop, complete its queues and index, and leave a clean stop.

    Cut bytes are kept in lakelog/quarantine/ of the store. Damage with whole records behind it
    stays in the log, and reads skip it; the exit code is then 1. It is also 1 if durable records at
    the end of the log are missing.
    """
    given = store.arguments | ({"on_damage": on_damage} if on_damage is not None else {})
    with progress("recovering") as advance:
        report = recover_store(store.path, dry_run=dry_run, full=full, progress=advance, **given)
    lines = recovery_lines(store.path, report, dry_run=dry_run)
    lines = chain(lines, [labelled("next", _next(report, dry_run=dry_run))])
    write_result({"dry_run": dry_run, **recovery_row(report)}, lines, as_json=as_json)
    exit_if_found(report.damage or report.missing)


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
