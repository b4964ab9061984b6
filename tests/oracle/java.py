"""Runs the real RocketMQ store: dumps its content, fills a store, measures it.

One Java serves all programs that close their store; the others end as by a kill, each in its own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import Final

from tests.support import maven
from tests.support.rows import Row, parse

NO_OPTIONS: Final[Mapping[str, str]] = MappingProxyType({})

_HERE: Final = Path(__file__).parent
_POM: Final = _HERE / "pom.xml"
_RESOURCES: Final = _HERE / "resources"
_HEAP: Final = "512m"
_MEASURED: Final = "Bench"
_SHORT: Final = "-XX:TieredStopAtLevel=1"
"""Only the first compiler, for short runs: 1.1 s of CPU time instead of 1.7."""
_REFUSED: Final = 3
_SERVED: Final = frozenset({"Dump", "Fill", "PutSame"})
_NEEDED: Final = ("java", "javac", "mvn")


_MOST_CALLS: Final = 50
"""Calls per process; copies that were dumped stay open in it, with their threads and maps."""


class Serving:
    """The program, started at the first call, and restarted after :data:`_MOST_CALLS` calls.

    :param command: the program and its arguments
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._process: subprocess.Popen[str] | None = None
        self._done = 0
        self._turn = Lock()

    def rows(self, program: str, arguments: Sequence[str]) -> list[Row]:
        """Return what a program prints; raises ``RuntimeError`` with an exception of it."""
        with self._turn:
            if self._done == _MOST_CALLS or (self._process and self._process.poll() is not None):
                self._end()
            if self._process is None:
                self._process = subprocess.Popen(
                    self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
                )
                self._done = 0
            self._done += 1
            return self._answer(self._process, [program, *arguments])

    @staticmethod
    def _answer(process: subprocess.Popen[str], words: Sequence[str]) -> list[Row]:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\t".join(words) + "\n")
        process.stdin.flush()
        rows = list[Row]()
        for line in process.stdout:
            row = json.loads(line)
            if row.get("kind") != "end":
                rows.append(row)
            elif row["thrown"]:
                raise RuntimeError(row["thrown"])
            else:
                return rows
        raise RuntimeError(f"the program ended with {process.wait()}")

    def close(self) -> None:
        """Stop the program, if it runs."""
        with self._turn:
            self._end()

    def _end(self) -> None:
        if self._process is not None:
            self._process.communicate()
            self._process = None


def missing() -> str | None:
    """Return a text with the missing programs that the real store needs; ``None`` without any."""
    absent = [command for command in _NEEDED if shutil.which(command) is None]
    if not absent:
        return None
    return f"the real store needs a JDK (17 or later) and Maven; not found: {', '.join(absent)}"


def build_oracle() -> Oracle:
    """Fetch the jars and compile the programs, unless that was done before."""
    return Oracle(maven.jars(_POM), _classes())


def _classes() -> Path:
    """Return the folder of the compiled programs and their resources."""
    library = maven.jars(_POM)
    sources = sorted((_HERE / "java").glob("*.java"))
    resources = sorted(path for path in _RESOURCES.rglob("*") if path.is_file())

    def compile_into(folder: Path) -> None:
        class_path = os.fspath(library / "*")
        maven.run(["javac", "-nowarn", "-cp", class_path, "-d", str(folder), *map(str, sources)])
        shutil.copytree(_RESOURCES, folder, dirs_exist_ok=True)

    state = maven.digest([_POM, *sources, *resources])
    return maven.once(maven.CACHE / f"classes-{state}", compile_into)


@dataclass(frozen=True)
class Oracle:
    """The compiled programs; options are properties of RocketMQ's MessageStoreConfig."""

    jars: Path
    classes: Path

    def dump(
        self, store: Path, options: Mapping[str, str] = NO_OPTIONS, *, in_place: bool = False
    ) -> list[Row]:
        """Open a copy of the directory with the real store, and return the rows that it reads.

        With ``in_place`` the directory itself is opened, and closed as by a stopped broker. A
        store that fails to load gives one row, with ``loaded`` false. Raises ``RuntimeError``.
        """
        if in_place:
            return self.run("Dump", store, ["--exit", "shutdown"], options)
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:  # it is still open
            copy = Path(scratch) / "store"
            subprocess.run(["cp", "-a", "--sparse=always", store, copy], check=True)
            return self._serving.rows("Dump", ["--store", str(copy), *_properties(options)])

    @cached_property
    def _serving(self) -> Serving:
        return Serving([*self._java(_SHORT), "lakelog.oracle.Serve"])

    def close(self) -> None:
        """Stop the Java that serves."""
        self._serving.close()

    def fill(
        self,
        store: Path,
        options: Mapping[str, str] = NO_OPTIONS,
        *,
        halt: bool = False,
        **settings: int,
    ) -> Row:
        """Write messages; ``settings`` are options of Fill.java, with underscores for hyphens."""
        command = [*_arguments(settings), "--exit", "halt" if halt else "shutdown"]
        return self.run("Fill", store, command, options)[0]

    def bench(
        self,
        store: Path,
        mode: str,
        options: Mapping[str, str] = NO_OPTIONS,
        /,
        **settings: int | str,
    ) -> Row:
        """Run a benchmark in an empty directory; ``settings`` are options of Bench.java."""
        return self.run("Bench", store, ["--mode", mode, *_arguments(settings)], options)[0]

    def run(
        self,
        program: str,
        store: Path,
        arguments: list[str],
        options: Mapping[str, str] = NO_OPTIONS,
    ) -> list[Row]:
        """Run one of the programs over a directory; raises ``RuntimeError``."""
        if program in _SERVED and "halt" not in arguments:
            given = ["--store", str(store), *arguments, *_properties(options)]
            return self._serving.rows(program, given)
        command = self.command(program, store, arguments, options)
        done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
        if done.returncode not in (0, _REFUSED):
            raise RuntimeError(f"{program} ended with {done.returncode}:\n{done.stderr}")
        return parse(done.stdout)

    def command(
        self,
        program: str,
        store: Path,
        arguments: list[str],
        options: Mapping[str, str] = NO_OPTIONS,
    ) -> list[str]:
        """Return the command that runs one of the programs over a directory."""
        java = self._java(*([] if program == _MEASURED else [_SHORT]))
        started = [*java, f"lakelog.oracle.{program}", "--store", str(store)]
        return [*started, *arguments, *_properties(options)]

    def _java(self, *flags: str) -> list[str]:
        # By default the logging library writes below the home directory; both settings are needed.
        return [
            "java",
            f"@{_HERE / 'jvm.args'}",
            *flags,
            f"-Xms{_HEAP}",
            f"-Xmx{_HEAP}",
            f"-Duser.home={maven.CACHE / 'home'}",
            f"-Drmq.logback.configurationFile={self.classes / 'logback.xml'}",
            "-cp",
            os.pathsep.join([str(self.jars / "*"), str(self.classes)]),
        ]


def _properties(options: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in options.items()]


def _arguments(settings: Mapping[str, int | str]) -> list[str]:
    pairs = ([f"--{name.replace('_', '-')}", str(value)] for name, value in settings.items())
    return [argument for pair in pairs for argument in pair]
