"""``lakelog repair``: reports the plan of a repair, asks for confirmation, and executes it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, TypedDict

import typer

from lakelog.recovery.filler import Step
from lakelog_cli import exitcodes, findings, options, output
from lakelog_doctor.repair import RepairReport
from lakelog_doctor.repair import repair as repair_store


class StepRow(TypedDict):
    """A step of a repair.

    :ivar possible: whether the step can be done
    """

    path: str
    offset: int
    what: str
    why: str
    possible: bool


class QueueName(TypedDict):
    """A queue."""

    topic: str
    queue_id: int


class RepairRow(TypedDict):
    """A repair.

    :ivar dry_run: whether nothing was changed
    :ivar recovery: the recovery; null if none was possible
    :ivar kept: overwritten ranges
    :ivar rebuilt: folders of rebuilt files
    :ivar led: queues with units that point to records of the repair
    """

    dry_run: bool
    recovery: findings.RecoveryDocument | None
    steps: list[StepRow]
    kept: list[findings.AsideRow]
    rebuilt: list[str]
    led: list[QueueName]
    seconds: float


@output.prints(RepairRow)
def repair(
    store: options.GivenStore,
    *,
    dry_run: options.DryRun = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Repair the log so that RocketMQ keeps all of it, too; then wrong queues and index.

    Whole records of the same size replace damaged ones, and blank records replace missing ones;
    overwritten bytes are kept in lakelog/quarantine/ of the store. The plan is printed, and has to
    be confirmed; without a terminal, --yes is required. The exit code is 1 if a repair is not
    possible, and with --dry-run if a repair is needed.
    """
    if not dry_run and not yes:
        _ask(store.path, _run(store, dry_run=True))
    report = _run(store, dry_run=dry_run)
    lines = _done_lines if report.done else _plan_lines
    output.write_result(_row(report), lines(store.path, report), as_json=as_json)
    output.exit_if_found(report.left or (dry_run and _finds(report)))


def _finds(planned: RepairReport) -> bool:
    """Whether a dry run found what `recover --dry-run` finds, or something to replace."""
    recovery = planned.recovery
    found = recovery is None or recovery.damage or recovery.missing
    return bool(found or planned.plan.steps)


def _run(store: options.GivenStore, *, dry_run: bool) -> RepairReport:
    with output.progress("reading" if dry_run else "repairing") as advance:
        return repair_store(store.path, dry_run=dry_run, progress=advance, **store.arguments)


def _ask(store: Path, planned: RepairReport) -> None:
    """Print the plan, and ask for confirmation; exits without it, or without a terminal."""
    output.print_lines(_plan_lines(store, planned), err=True)
    if not sys.stdin.isatty():
        output.print_line("lakelog: nobody can be asked here; give --yes to do it", err=True)
        raise typer.Exit(exitcodes.USAGE)
    typer.confirm("Do it?", abort=True, err=True)


def _plan_lines(store: Path, planned: RepairReport) -> Iterator[str]:
    """The lines of a plan."""
    if planned.recovery is not None:
        yield from findings.recovery_lines(store, planned.recovery, dry_run=True)
    else:
        yield f"{store}: what a recovery does can be told once this is mended"
    yield from _steps(planned.plan.steps, "mend")
    yield output.labelled(
        "then", "queues and index are compared with the log, and built anew where wrong"
    )


def _done_lines(store: Path, done: RepairReport) -> Iterator[str]:
    """The lines about executed steps."""
    if done.recovery is not None:
        yield from findings.recovery_lines(store, done.recovery, dry_run=False)
    yield from _steps(done.plan.steps, "mended")
    for aside in done.kept:
        yield output.labelled("kept", str(aside))
    built = ", ".join(done.rebuilt)
    yield output.labelled(
        "queues", f"and index {f'were wrong; built anew: {built}' if built else 'are right'}"
    )
    if done.led:
        led = ", ".join(f"{topic}/{queue_id}" for topic, queue_id in done.led)
        yield output.labelled("lost", f"messages of {led}; their places lead to what replaces them")
    yield output.labelled("took", f"{done.seconds:.2f} s in all; the store was closed cleanly")


def _steps(steps: tuple[Step, ...], words: str) -> Iterator[str]:
    for step in steps:
        yield output.labelled(words if step.is_possible else "CANNOT", str(step))
    if not steps:
        yield output.labelled("log", "nothing has to be replaced in it")


def _row(report: RepairReport) -> dict[str, Any]:
    recovery = report.recovery
    return {
        "dry_run": not report.done,
        "recovery": findings.recovery_row(recovery) if recovery is not None else None,
        "steps": [_step_row(each) for each in report.plan.steps],
        "kept": list(map(findings.aside_row, report.kept)),
        "rebuilt": list(report.rebuilt),
        "led": [{"topic": topic, "queue_id": queue_id} for topic, queue_id in report.led],
        "seconds": report.seconds,
    }


def _step_row(step: Step) -> dict[str, Any]:
    return {
        "path": str(step.path),
        "offset": step.offset,
        "what": step.what,
        "why": step.why,
        "possible": step.is_possible,
    }
