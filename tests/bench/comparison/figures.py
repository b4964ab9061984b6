"""Selects figures of the benchmark's suites for the comparison."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from tests.support.killing import ROOT

SUITES: Final = ("put", "put_batch", "durable", "read")
STORES: Final = {
    "lakelog": "lakelog",
    "rocketmq": "RocketMQ's Java store",
    "lmdb": "LMDB",
    "rocksdb": "RocksDB",
    "sqlite": "SQLite",
    "sqlite wal": "SQLite",
}
"""By the name of a contender, that of its column."""
_ROUNDS: Final = 5


def rows(file: Path | None) -> list[dict[str, Any]]:
    """Return the results of the suites, by contest; runs the suites without a ``file``.

    :param file: the output of `python -m tests.bench --json FILE`
    """
    with tempfile.TemporaryDirectory() as folder:
        if file is None:
            file = Path(folder) / "figures.json"
            command = [sys.executable, "-m", "tests.bench", *SUITES, "--rounds", str(_ROUNDS)]
            subprocess.run([*command, "--json", str(file)], cwd=ROOT, check=True)
        measured = json.loads(file.read_text())["rows"]
    found = dict[str, dict[str, float]]()
    for row in measured:
        figures = list(row["median"].values())
        if row["suite"] in SUITES and row["store"] in STORES and figures:
            what = f"{row['suite']}: {row['contest']}"
            found.setdefault(what, {})[STORES[row["store"]]] = figures[0]
    return [{"what": what, "median": median} for what, median in found.items()]
