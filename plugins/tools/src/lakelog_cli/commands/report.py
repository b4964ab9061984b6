"""``lakelog report``: a store as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lakelog_cli.exitcodes import FOUND
from lakelog_cli.opening import open_for
from lakelog_cli.options import AsJson, Assignments, BrokerConf, SettingsFile, StorePath
from lakelog_cli.output import write_file, write_lines
from lakelog_cli.printed import prints
from lakelog_cli.progress import progress
from lakelog_cli.report.content import read_content
from lakelog_cli.report.page import page
from lakelog_cli.rows.repairs import ReportRow


@prints(ReportRow)
def report(
    store: StorePath,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The page to write.")
    ] = Path("report.html"),
    as_json: AsJson = False,
    broker_conf: BrokerConf = None,
    settings: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Write a page about a store: traffic, topics, segments, damage, lags, disks.

    The page is one file without references to others. The whole log is read once; the store may be
    in use, or left by a crashed broker. The exit code is 1 if damage was found.
    """
    with open_for("read", store, broker_conf, settings, assignments) as opened:
        start, end = opened.min_offset, opened.max_offset
        with progress("reading", max(0, end - start)) as advance:
            content = read_content(opened, lambda offset: advance(offset - start))
    write_file(output, page(content))
    if as_json:
        write_lines([{"path": str(output), "damaged_places": len(content.damages)}])
    else:
        typer.echo(str(output))
    if content.damages:
        raise typer.Exit(FOUND)
