"""The command line: which suites, how often, where."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from tests.bench import machine, report
from tests.bench.durable.opening import GIB_VARIABLE
from tests.bench.model import Contest, Suite
from tests.bench.rounds import play
from tests.bench.suites import SUITES

_CACHE: Final = Path(__file__).parents[2] / ".cache" / "bench"
_WIDTH_OF_A_FILE: Final = 110


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="suite", help=f"of {', '.join(SUITES)}")
    parser.add_argument("--rounds", type=int, default=3, help="runs of every store (default 3)")
    parser.add_argument("--quick", action="store_true", help="much less work, for a first look")
    parser.add_argument("--gib", type=float, help="how large stores are where they are filled")
    parser.add_argument("--only", action="append", metavar="STORE", help="run these stores alone")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write all figures")
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write them as a page")
    parser.add_argument(
        "--from",
        type=Path,
        metavar="FILE",
        dest="former",
        help="measure nothing: figures of --json",
    )
    parser.add_argument("--dir", type=Path, help="a folder on the disk to measure")
    options = parser.parse_args()
    unknown = set(options.suites) - set(SUITES)
    if unknown:
        parser.error(f"no suite {', '.join(sorted(unknown))}; there are {', '.join(SUITES)}")
    if options.former is not None and options.html is None:
        parser.error("--from needs --html FILE, the page to write")
    if options.html is not None and (options.html.is_dir() or not options.html.parent.is_dir()):
        parser.error(f"--html {options.html}: name a file in a directory that exists")
    return options


def main() -> None:
    """Run the suites, print a table after each, write the figures."""
    options = arguments()
    if options.former is not None:
        figures = json.loads(options.former.read_text())
        options.html.write_text(report.page(SUITES, figures), encoding="utf-8")
        return
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # installed packages have byte code too
    if options.gib is not None:
        os.environ[GIB_VARIABLE] = str(options.gib)
    console = Console() if sys.stdout.isatty() else Console(width=_WIDTH_OF_A_FILE)
    parent: Path = options.dir or _CACHE
    parent.mkdir(parents=True, exist_ok=True)
    described = machine.describe(parent)
    console.print(described)
    if described["file system"] == "tmpfs":
        console.print("[yellow]That is memory, not a disk: choose another folder with --dir.")
    rows: list[dict[str, Any]] = []
    for name in options.suites or SUITES:
        rows += _suite(console, SUITES[name], options, parent)
    file: Path = options.json or _CACHE / "figures.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    figures = {"machine": described, "rows": rows}
    file.write_text(json.dumps(figures, indent=1), encoding="utf-8")
    console.print(f"all figures: {file}")
    if options.html is not None:
        options.html.write_text(report.page(SUITES, figures), encoding="utf-8")


def _suite(
    console: Console, suite: Suite, options: argparse.Namespace, parent: Path
) -> list[dict[str, Any]]:
    with (
        tempfile.TemporaryDirectory(dir=parent) as scratch,
        console.status(suite.name) as status,
    ):
        results = {
            contest.title: play(contest, options.rounds, Path(scratch), status.update)
            for contest in _chosen(suite.contests(options.quick), options.only)
        }
    report.table(console, suite, results)
    return report.as_json(suite, results)


def _chosen(contests: Sequence[Contest], only: list[str] | None) -> Sequence[Contest]:
    """Return contests with only the stores in ``only``, without contests that have none left."""
    if only is None:
        return contests
    kept = [
        Contest(contest.title, [one for one in contest.contenders if one.name in only])
        for contest in contests
    ]
    return [contest for contest in kept if contest.contenders]


if __name__ == "__main__":
    main()
