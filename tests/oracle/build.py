"""Fetches the jars and compiles the programs, once for each state of their sources.

What is built lies in the checkout's `.cache/oracle`, under names that hold a hash of the sources.
Processes that need it at the same moment (pytest-xdist) wait for one another at a file lock, and
what is not complete has not got its name yet.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
CACHE: Final = HERE.parents[1] / ".cache" / "oracle"

_POM: Final = HERE / "pom.xml"
_RESOURCES: Final = HERE / "resources"


def jars(pom: Path = _POM) -> Path:
    """Give the folder of the released jars that a POM names, as Maven resolves them."""
    return once(CACHE / f"jars-{_digest([pom])}", partial(_copy_jars, pom))


def classes() -> Path:
    """Give the folder of the compiled programs and their resources."""
    library = jars()
    sources = sorted((HERE / "java").glob("*.java"))
    resources = sorted(path for path in _RESOURCES.rglob("*") if path.is_file())

    def compile_into(folder: Path) -> None:
        class_path = os.fspath(library / "*")
        _run(["javac", "-nowarn", "-cp", class_path, "-d", str(folder), *map(str, sources)])
        shutil.copytree(_RESOURCES, folder, dirs_exist_ok=True)

    return once(CACHE / f"classes-{_digest([_POM, *sources, *resources])}", compile_into)


def once(target: Path, make: Callable[[Path], None]) -> Path:
    """Have `make` fill a folder that gets the target's name when it is complete."""
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


def _copy_jars(pom: Path, folder: Path) -> None:
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
    _run(["mvn", "-q", "-B", "--strict-checksums", "-f", str(pom), *goal])


def _digest(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.relative_to(HERE.parent)}\0".encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed:\n{done.stdout}{done.stderr}")
