"""A day of trickle, a pass each second: what a commit costs after a minute and after 24 hours.

`python -m tests.bench.lake.day iceberg` prints the medians, `--files-at-once 20` fills the time
between the marks with commits of more files, so that a day takes minutes. The data files are not
there: who commits does not read them. Iceberg's clock is a counter, one second a commit; Delta's is
that of its log's files, so give a `--history` as long as 600 commits take. Beside each mark another
table is measured in turns, which is a minute old: what the machine does meanwhile hits both.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from lakelog_lake.engine_provider import nothing
from lakelog_lake.landing.targets import Target, Targets
from lakelog_lake.maintenance.folders import PeriodicCompaction
from lakelog_lake.sinks.delta import opened
from plugins.lake.tests.landing.many_commits import Day

MARKS: Final = {"1 min": 60, "1 h": 3600, "6 h": 21_600, "24 h": 86_400}
_SAMPLE: Final = 60
_TARGET_BYTES: Final = 128 << 20


def main() -> None:
    """Print what a commit costs at each mark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=("iceberg", "delta"))
    parser.add_argument("--files-at-once", type=int, default=1)
    parser.add_argument("--history", help="as of lakelog dispatch")
    parser.add_argument("--compact", type=int, help="as of lakelog dispatch, of Delta")
    parser.add_argument("--forget", type=int, default=72, help="seconds that stand for an hour")
    parser.add_argument("--dir", type=Path, help="where the table is")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
        old = Day.of(options.kind, Path(folder, "table"), options.history)
        compact: Callable[[], None] = nothing
        if options.compact:
            targets = Targets([Target(old.sink)])
            compact = PeriodicCompaction(targets, options.compact, _TARGET_BYTES)
            old.with_files()
            forget = {"delta.deletedFileRetentionDuration": f"interval {options.forget} seconds"}
            opened(Path(folder, "table")).alter.set_table_properties(forget)
        for name, second in MARKS.items():
            while second - old.second > options.files_at_once:
                old.commit(options.files_at_once)
                compact()
            while old.second < second:
                old.commit()
            compact()
            young = Day.of(options.kind, Path(folder, name), options.history)
            while young.second < MARKS["1 min"]:
                young.commit()
            for _ in range(_SAMPLE):
                young.commit()
                old.commit()
            print(f"{name:>6}: {_medians(old)}; beside it 1 min: {_medians(young)}", flush=True)


def _medians(day: Day) -> str:
    wall, cpu = (1e3 * statistics.median(each[-_SAMPLE:]) for each in (day.wall, day.cpu))
    return f"{wall:6.1f} ms, {cpu:5.1f} ms of CPU"


if __name__ == "__main__":
    main()
