"""Plant faults, one by one, in a copy of the sources, and run the tests that find them.

The tests are run without a fault first: a test that fails by itself finds nothing. Prints a line
per fault with the test that found it and its seconds. Exit status 1 if a fault was not found, 2 if
the table does not fit the sources or tests could not be run.
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
from tests.support import sampling

TIMEOUT_S: Final = 300.0
CONTROL_TIMEOUT_S: Final = 1800.0
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
        self._tests: subprocess.Popen[bytes] | None = None
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
            sampling.SEED: "1",  # the same cases of a matrix each time
            "PYTHONDONTWRITEBYTECODE": "",  # empty: byte code is kept from run to run
            "CARGO_TARGET_DIR": os.fspath(ROOT / NATIVE / "target" / "mutants"),
            # compiled in seconds; how fast the code is matters to no fault
            "CARGO_PROFILE_RELEASE_LTO": "off",
            "CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "16",
            "CARGO_PROFILE_RELEASE_INCREMENTAL": "true",
        }

    def run(self, tests: Sequence[str], *options: str, timeout_s: float) -> tuple[int, str]:
        """Run tests; return the exit code of pytest and its output."""
        command = [
            *(
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-rfE",
                "--no-header",
                "-p",
                "no:cacheprovider",
            ),
            *("--hypothesis-seed=1", "-m", "not slow and not soak", *options, *tests),
        ]
        with tempfile.TemporaryFile("w+") as output:
            self._tests = subprocess.Popen(
                command,
                cwd=self.root,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            try:
                code = self._tests.wait(timeout_s)
            except subprocess.TimeoutExpired:
                code = _TIMEOUT
                output.write(f"\n{tests[0]} did not end within {timeout_s:.0f} s\n")
            finally:
                self.kill()
                self._tests.wait()
            output.seek(0)
            return code, output.read()

    def kill(self) -> None:
        """Kill the tests that run, and all that they started."""
        if self._tests is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._tests.pid, signal.SIGKILL)

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
            code, output = self.run([fault.test], "-x", "-n", "0", timeout_s=TIMEOUT_S)
            named = _FAILURE.search(output)
            outcome, detail = {
                _PASSED: (MISSED, fault.test),
                _FAILED: (FOUND, named[1] if named else fault.test),
            }.get(code, (ERROR, output))
            if code < 0:  # compiled code may end the process
                outcome, detail = FOUND, f"{fault.test} (ended by signal {-code})"
            return Result(fault, outcome, detail, time.monotonic() - began)
        finally:
            path.write_text(original, encoding="utf-8")
            if path.suffix == ".py":  # cargo compiles again what is newer
                os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))


@attrs.define
class Runner:
    """Plants some faults, in several copies side by side.

    :ivar errors: of copying and of the control, which end the run
    :ivar rust: planted in the first copy, after one another: cargo compiles them in one folder
    """

    chosen: Sequence[Fault]
    scratch: Path
    jobs: int
    results: list[Result] = attrs.field(factory=list)
    errors: list[str] = attrs.field(factory=list)
    _copies: list[Copy] = attrs.field(factory=list)
    _waiting: queue.SimpleQueue[Fault] = attrs.field(factory=queue.SimpleQueue)
    _stopped: bool = False

    def run(self) -> None:
        """Run the tests without a fault, then plant the faults, and print a line for each."""
        self._copies = [Copy(self.scratch / str(at)) for at in range(self.jobs)]
        self._control()
        rust = [each for each in self.chosen if each.file.endswith(".rs")]
        for each in self.chosen:
            if each not in rust:
                self._waiting.put(each)
        threads = [
            threading.Thread(target=self._work, args=(copy, () if at else rust))
            for at, copy in enumerate(self._copies)
        ]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except KeyboardInterrupt:
            self._stopped = True
            for copy in self._copies:
                copy.kill()
            for thread in threads:
                thread.join()
            raise

    def _control(self) -> None:
        tests = sorted({each.test for each in self.chosen})
        parallel = ("-n", str(self.jobs), "--dist", "worksteal")
        code, output = self._copies[0].run(tests, *parallel, timeout_s=CONTROL_TIMEOUT_S)
        if code != _PASSED:
            raise TestsFail(output)
        print(f"{len(tests)} tests pass without a fault", flush=True)

    def _work(self, copy: Copy, rust: Sequence[Fault]) -> None:
        try:
            for fault in rust:
                if not self._stopped:
                    self._report(copy.find(fault))
            if rust and not self._stopped and (errors := copy.compile()):
                self.errors.append(errors)
                return
            while not self._stopped:
                self._report(copy.find(self._waiting.get_nowait()))
        except queue.Empty:
            return
        except OSError as error:
            self.errors.append(str(error))

    def _report(self, result: Result) -> None:
        if self._stopped:
            return
        self.results.append(result)
        fault, done = result.fault, f"{len(self.results):3}/{len(self.chosen)}"
        line = f"{done} {result.outcome:9} {fault.area}/{fault.name} {result.seconds:.0f} s"
        print(f"{line}: {result.detail}", flush=True)


class TestsFail(Exception):
    """Tests fail, or cannot be run, without a fault; the text is the output of pytest."""


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


def plant(chosen: Sequence[Fault], jobs: int) -> int:
    """Plant faults in ``jobs`` copies, and print the results; return the exit status."""
    with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as scratch:
        Path(scratch).chmod(0o755)  # some tests run programs of other users
        runner = Runner(chosen, Path(scratch), jobs)
        try:
            runner.run()
        except TestsFail as error:
            print(f"{error}\ntests fail without a fault: mend them first", file=sys.stderr)
            return 2
        except OSError as error:
            print(f"cannot copy the sources to {scratch}: {error}", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            print(f"\nstopped after {len(runner.results)} of {len(chosen)}", file=sys.stderr)
            return 130
    for each in runner.errors:
        print(each, file=sys.stderr)
    results = runner.results
    counts = {name: sum(r.outcome == name for r in results) for name in (FOUND, MISSED, ERROR)}
    print(", ".join(f"{count} {name}" for name, count in counts.items()))
    if counts[ERROR] or len(results) != len(chosen):
        return 2
    return 1 if counts[MISSED] else 0


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
    return plant(chosen, max(1, arguments.jobs))


if __name__ == "__main__":
    sys.exit(main())
