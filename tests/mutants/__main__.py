"""Plant faults, one by one, in a copy of the sources, and run the tests that find them.

``python -m tests.mutants [NAME ...] [--area AREA] [--sample N] [--jobs N] [--table FILE]``

Prints a line per fault: the test that found it, its seconds. Exit status 1 if a fault was not
found, 2 if the table does not fit the sources or tests could not be run.
"""

from __future__ import annotations

import argparse
import os
import queue
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs

from tests.mutants import faults
from tests.mutants.faults import ROOT, Fault, TableError

TIMEOUT_S: Final = 300
NATIVE: Final = "plugins/native"
FOUND, MISSED, ERROR = "found", "NOT FOUND", "ERROR"
_PASSED, _FAILED, _TIMEOUT = 0, 1, 124  # exit codes; pytest has none above 5
_FAILURE: Final = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


@attrs.frozen
class Result:
    """The result of a fault.

    :ivar outcome: one of ``FOUND``, ``MISSED``, ``ERROR``
    :ivar detail: the test that found it, or the output that explains an error
    """

    fault: Fault
    outcome: str
    detail: str
    seconds: float


class Copy:
    """A copy of the sources, whose packages are imported in place of the installed ones."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._changes = 0
        listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
        names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        compiled = [os.fspath(p.relative_to(ROOT)) for p in ROOT.glob(f"{NATIVE}/src/*/*.so")]
        for name in [*filter(None, names.split("\0")), *compiled]:
            if (ROOT / name).is_file():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, root / name)
        for shared in (".venv", ".cache"):  # what setup and the first test with Java made
            if (ROOT / shared).exists():
                (root / shared).symlink_to(ROOT / shared)
        sources = [*root.glob("core/src"), *root.glob("plugins/*/src"), *root.glob("contrib/*/src")]
        path = [*map(os.fspath, [*sources, root]), os.environ.get("PYTHONPATH", "")]
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, path)),
            "PYTHONDONTWRITEBYTECODE": "",  # empty: byte code is kept from run to run
            "CARGO_TARGET_DIR": os.fspath(ROOT / NATIVE / "target" / "mutants"),
            # compiled in seconds; how fast the code is matters to no fault
            "CARGO_PROFILE_RELEASE_LTO": "off",
            "CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "16",
            "CARGO_PROFILE_RELEASE_INCREMENTAL": "true",
        }

    def run(self, tests: Sequence[str]) -> tuple[int, str]:
        """Run tests until the first failure; return the exit code of pytest and its output."""
        command = [
            *(sys.executable, "-m", "pytest", "-q", "-x", "-rfE", "--no-header"),
            *("-p", "no:cacheprovider", "-n", "0", "-m", "not slow and not soak", *tests),
        ]
        with tempfile.TemporaryFile("w+") as output:
            process = subprocess.Popen(
                command,
                cwd=self.root,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            try:
                code = process.wait(TIMEOUT_S)
            except subprocess.TimeoutExpired:
                code = _TIMEOUT
                output.write(f"\n{tests[0]} did not end within {TIMEOUT_S} s\n")
            finally:
                _kill_session(process.pid)
                process.wait()
            output.seek(0)
            return code, output.read()

    def compile(self) -> str | None:
        """Compile the extension into the copy; return the errors of the compiler."""
        built = subprocess.run(
            ["cargo", "build", "--release", "--quiet", "--features", "extension-module"],
            cwd=self.root / NATIVE,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if built.returncode:
            return built.stderr
        target = Path(self.environment["CARGO_TARGET_DIR"]) / "release" / "lib_native.so"
        for installed in self.root.glob(f"{NATIVE}/src/*/*.so"):
            installed.unlink()  # not written in place: it may be mapped
            shutil.copy2(target, installed)
        return None

    def find(self, fault: Fault) -> Result:
        """Plant a fault, run its tests, and restore the file."""
        began = time.monotonic()
        path = self.root / fault.file
        original, state = path.read_text(encoding="utf-8"), path.stat()
        path.write_text(fault.planted(self.root), encoding="utf-8")
        # Byte code is found by size and time, in seconds: no two versions have the same time.
        self._changes += 1
        if path.suffix == ".py":
            os.utime(path, (self._changes, self._changes))
        try:
            if path.suffix == ".rs":
                errors = self.compile()
                if errors is not None:
                    return Result(fault, ERROR, errors, time.monotonic() - began)
            outcome, detail = MISSED, ""
            first, *others = fault.tests
            for tests in filter(None, ([first], others)):
                code, output = self.run(tests)
                if code == _FAILED:
                    named = _FAILURE.search(output)
                    outcome, detail = FOUND, named[1] if named else tests[0]
                    break
                if code < 0:  # compiled code may end the process
                    outcome, detail = FOUND, f"{tests[0]} (ended by signal {-code})"
                    break
                if code != _PASSED:
                    outcome, detail = ERROR, output
                    break
            return Result(fault, outcome, detail, time.monotonic() - began)
        finally:
            path.write_text(original, encoding="utf-8")
            if path.suffix == ".py":  # cargo compiles again what is newer
                os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))


def _kill_session(session: int) -> None:
    """Kill what a run of tests left behind."""
    with suppress(ProcessLookupError):
        os.killpg(session, signal.SIGKILL)


@attrs.define
class Hunt:
    """A run of some faults, in several copies side by side.

    :ivar rust: planted in the first copy, after one another: cargo compiles them in one folder
    """

    chosen: Sequence[Fault]
    scratch: Path
    results: list[Result] = attrs.field(factory=list)
    rust: list[Fault] = attrs.field(init=False)
    python: queue.SimpleQueue[Fault] = attrs.field(init=False, factory=queue.SimpleQueue)

    def __attrs_post_init__(self) -> None:
        self.rust = [each for each in self.chosen if each.file.endswith(".rs")]
        for each in self.chosen:
            if each not in self.rust:
                self.python.put(each)

    def run(self, jobs: int) -> None:
        """Plant the faults, and print a line for each."""
        threads = [threading.Thread(target=self._work, args=(at,)) for at in range(jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _work(self, number: int) -> None:
        copy = Copy(self.scratch / str(number))
        if number == 0 and self.rust:
            for fault in self.rust:
                self._report(copy.find(fault))
            copy = Copy(self.scratch / "python")
        while True:
            try:
                fault = self.python.get_nowait()
            except queue.Empty:
                return
            self._report(copy.find(fault))

    def _report(self, result: Result) -> None:
        self.results.append(result)
        fault, done = result.fault, f"{len(self.results):3}/{len(self.chosen)}"
        line = f"{done} {result.outcome:9} {fault.area}/{fault.name} {result.seconds:.0f} s"
        print(f"{line}: {result.detail}", flush=True)


def choose(arguments: argparse.Namespace) -> list[Fault]:
    """Return the faults that the arguments name, whose places are all there.

    :raises TableError: if the text of any fault of the table is not where the table has it
    """
    table = faults.load(arguments.table)
    for each in table:
        each.planted(ROOT)
    unknown = set(arguments.names) - {each.name for each in table}
    if unknown:
        raise TableError(f"no fault of the table has the name {', '.join(sorted(unknown))}")
    chosen = [
        each
        for each in table
        if (not arguments.names or each.name in arguments.names)
        and (not arguments.area or each.area in arguments.area)
    ]
    if arguments.sample:
        head = ["git", "rev-parse", "HEAD"]
        commit = subprocess.run(head, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        print(f"{arguments.sample} faults, chosen by the commit {commit.strip()}")
        chosen = random.Random(commit.strip()).sample(chosen, min(arguments.sample, len(chosen)))
    return chosen


def main() -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="faults; default: all")
    parser.add_argument("--area", action="append", choices=faults.AREAS)
    parser.add_argument("--sample", type=int, metavar="N", help="N faults, chosen by the commit")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="copies side by side")
    parser.add_argument("--table", type=Path, default=faults.TABLE, metavar="FILE")
    parser.add_argument("--check", action="store_true", help="check the table, run nothing")
    arguments = parser.parse_args()
    try:
        chosen = choose(arguments)
    except TableError as error:
        print(f"tests/mutants/table.toml: {error}", file=sys.stderr)
        return 2
    if arguments.check:
        print(f"{len(chosen)} faults, all in place")
        return 0
    with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as scratch:
        hunt = Hunt(chosen, Path(scratch))
        hunt.run(max(1, arguments.jobs))
    results = hunt.results
    counts = {name: sum(r.outcome == name for r in results) for name in (FOUND, MISSED, ERROR)}
    print(", ".join(f"{count} {name}" for name, count in counts.items()))
    if counts[ERROR] or len(results) != len(chosen):
        return 2
    return 1 if counts[MISSED] else 0


if __name__ == "__main__":
    sys.exit(main())
