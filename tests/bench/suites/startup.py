"""The time of an import, and of opening an empty store, each in a new interpreter."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tests.bench.model import LAKELOG, CannotRunError, Column, Contender, Contest, Sample

_PROCESSES = 7
_QUICK_PROCESSES = 3
_OPENINGS = {
    LAKELOG: ("lakelog", "lakelog.open(path).close()"),
    "lmdb": ("lmdb", "lmdb.open(path).close()"),
    "rocksdb": ("rocksdict", "rocksdict.Rdict(path).close()"),
    "sqlite": ("sqlite3", "sqlite3.connect(path + '/db').execute('CREATE TABLE t (a)')"),
}
_SCRIPT = """
import json, sys, time
path = sys.argv[1]
start = time.perf_counter()
import {module}
imported = time.perf_counter()
{opening}
opened = time.perf_counter()
print(json.dumps([(imported - start) * 1e3, (opened - imported) * 1e3]))
"""


class Startup:
    name = "import"
    about = "a fresh interpreter: the import, then an empty store opened and closed"
    columns: Sequence[Column] = (
        Column("import_ms", "import ms", ",.1f"),
        Column("open_ms", "open and close ms", ",.1f"),
    )
    lower_is_better = True

    def contests(self, *, quick: bool) -> Sequence[Contest]:
        processes = _QUICK_PROCESSES if quick else _PROCESSES
        contenders = [
            Contender(name, f"{opening}, defaults", partial(_run, module, opening, processes))
            for name, (module, opening) in _OPENINGS.items()
        ]
        return [Contest("empty store", contenders)]


def _run(module: str, opening: str, processes: int, directory: Path) -> Sample:
    script = _SCRIPT.format(module=module, opening=opening)
    _once(script, directory / "first")  # writes missing byte code
    samples = [_once(script, directory / str(number)) for number in range(processes)]
    imports_ms, opens_ms = zip(*samples, strict=True)
    return {"import_ms": statistics.median(imports_ms), "open_ms": statistics.median(opens_ms)}


def _once(script: str, directory: Path) -> tuple[float, float]:
    directory.mkdir()
    command = [sys.executable, "-c", script, str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotRunError(done.stderr.strip().splitlines()[-1])
    import_ms, open_ms = json.loads(done.stdout)
    return import_ms, open_ms
