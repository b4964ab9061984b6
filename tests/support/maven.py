"""Fetches jars by Maven, and builds programs, once for each state of their sources.

Results are in ``lakelog-tests`` in the user's cache, under names with a hash of the sources, so
that checkouts share them. Processes that need a result at the same time (pytest-xdist) wait for one
another at a file lock. A result gets its name only when it is complete.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

_TESTS: Final = Path(__file__).parents[1]
_USER_CACHE: Final = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
CACHE: Final = Path(_USER_CACHE) / "lakelog-tests"


def jars(pom: Path, **properties: str) -> Path:
    """Return the folder of the released jars that a POM names, as Maven resolves them.

    :param properties: the POM's properties, with ``_`` for ``.`` in names
    """
    given = [f"-D{name.replace('_', '.')}={value}" for name, value in properties.items()]
    state = "-".join([digest([pom]), *properties.values()])
    return once(CACHE / f"jars-{state}", partial(_copy_jars, pom, given))


def once(target: Path, make: Callable[[Path], None]) -> Path:
    """Let ``make`` fill a folder, unless ``target`` exists; rename it to ``target`` at the end."""
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
                unfinished = Path(scratch) / target.name
                unfinished.mkdir()
                make(unfinished)
                unfinished.rename(target)
    return target


def _copy_jars(pom: Path, given: Sequence[str], folder: Path) -> None:
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
    run(["mvn", "-q", "-B", "--strict-checksums", "-f", str(pom), *given, *goal])


def digest(files: Iterable[Path]) -> str:
    """Return a hash of the names and contents of ``files``."""
    made = hashlib.sha256()
    for file in files:
        made.update(f"{file.relative_to(_TESTS)}\0".encode())
        made.update(hashlib.sha256(file.read_bytes()).digest())
    return made.hexdigest()[:16]


def run(
    command: list[str], folder: Path | None = None, environ: Mapping[str, str] | None = None
) -> None:
    """Run a program of the build in ``folder``; raises ``RuntimeError`` with its output."""
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=folder, env=environ
    )
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed:\n{done.stdout}{done.stderr}")
