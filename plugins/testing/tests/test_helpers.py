"""Counted hook calls, copies of a running store, differing bytes, and processes that are held."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from core.tests.registry.samples import load, plugin
from lakelog.hooks import Kind
from lakelog_testing import copy_store, count_hook_calls
from lakelog_testing.faultyfile import assert_same
from lakelog_testing.threads import hold
from plugins.tools.tests.daemon.support import is_there


def test_hook_calls_are_counted_by_name_while_the_block_runs() -> None:
    registry = load(plugin(lakelog_store_closed=lambda: None))
    registry.events.store_closed(Path())
    with count_hook_calls(registry) as calls:
        registry.sections()  # no strategy is picked by a hook
        registry.names(Kind.WRITER)
        registry.events.segment_rolled(Path(), 0)
        registry.events.store_closed(Path())
        registry.plugged.manager.hook.lakelog_writers()
    registry.events.store_closed(Path())
    assert calls == ["lakelog_store_closed", "lakelog_writers"]


def test_segments_that_are_renamed_while_a_store_is_copied_are_left_out(tmp_path: Path) -> None:
    folder, log = tmp_path / "store" / "lakelog" / "tmp", tmp_path / "log"
    folder.mkdir(parents=True)
    log.mkdir()
    (tmp_path / "store" / "checkpoint").write_bytes(b"c")

    def rename() -> None:
        for path in reversed(made):
            path.replace(log / path.name)

    for number in range(5):
        made = [folder / f"{each:020d}" for each in range(200)]
        for path in made:
            path.write_bytes(b"s")
        thread = Thread(target=rename)
        thread.start()
        try:
            copy = copy_store(tmp_path / "store", tmp_path / str(number))
        finally:
            thread.join()
        assert (copy / "checkpoint").read_bytes() == b"c"


LONG = bytes(1 << 20)


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (LONG[:-1] + b"\x01", "at 1048575 is b'\\x01', expected b'\\x00'"),
        (LONG[:-1], "1048575 bytes, 1048576 expected; at 1048575 is b'', expected b'\\x00'"),
        (LONG + b"more", "at 1048576 is b'more', expected b''"),
        (b"\x02" + LONG[1:], "at 0 is b'\\x02\\x00"),
    ],
    ids=["last", "short", "long", "first"],
)
def test_the_first_difference_of_bytes_is_told(found: bytes, told: str) -> None:
    assert_same(memoryview(LONG), LONG)
    with pytest.raises(AssertionError, match=re.escape(told)):
        assert_same(found, LONG)


BUSY = """
import threading
threading.Thread(target=lambda: [None for _ in iter(int, 1)], daemon=True).start()
print("busy", flush=True)
while True:
    pass
"""


@pytest.fixture
def busy() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"busy\n"
        yield process
        process.kill()


def test_a_held_process_has_stopped_when_the_call_returns(busy: subprocess.Popen[bytes]) -> None:
    for _ in range(10):
        hold(busy.pid)
        stats = [each.read_text() for each in Path(f"/proc/{busy.pid}/task").glob("*/stat")]
        assert {each.rpartition(")")[2].split()[0] for each in stats} == {"T"}
        os.kill(busy.pid, signal.SIGCONT)
    busy.kill()
    while is_there(busy.pid):
        pass
    hold(busy.pid)  # it has ended, which is no error
    busy.wait()
    with pytest.raises(ProcessLookupError):
        hold(busy.pid)
