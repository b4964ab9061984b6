"""What processes share may be left in any state by a crash: an open goes by the log alone."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

import lakelog
from lakelog import Message
from lakelog.format.layout import OWN_DIR
from lakelog.processes.queue_table import is_table, table_path
from lakelog.processes.shared_page import page_path
from lakelog_testing.samples import copy_store

PUTS: Final = 5
Change: TypeAlias = Callable[[Path], object]


def _rest_is_junk(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:8] + os.urandom(len(data) - 8))


STATES: Final[dict[str, Change]] = {
    "as it was": Path.stat,
    "gone": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "short": lambda path: path.write_bytes(path.read_bytes()[:1000]),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "ones": lambda path: path.write_bytes(b"\xff" * path.stat().st_size),
    "first half lost": lambda path: path.write_bytes(bytes(4096) + path.read_bytes()[4096:]),
    "junk": _rest_is_junk,
}


SETTINGS: Final[dict[str, Any]] = {
    "flush": "inline",
    "segment_size_bytes": 1 << 16,
    "preallocate": False,
}
KILLED: Final = f"""
import lakelog, os, signal, sys
store = lakelog.open(sys.argv[1], **{SETTINGS})
for _ in range({PUTS}):
    store.put(lakelog.Message("t", b"before", queue_id=0))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a kill leaves, with the table of a larger generation beside the one that counted."""
    path = tmp_path_factory.mktemp("killed") / "store"
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    shutil.copy(table_path(path, 1), table_path(path, 2))
    return path


@pytest.mark.parametrize(
    ("page", "table"), [*zip(STATES, STATES, strict=True), ("junk", "as it was"), ("gone", "junk")]
)
def test_an_open_recovers(page: str, table: str, killed: Path, tmp_path: Path) -> None:
    path = tmp_path / "store"
    copy_store(killed, path)
    STATES[page](page_path(path))
    STATES[table](table_path(path, 1))
    with lakelog.open(path, **SETTINGS) as store:
        put = store.put(Message("t", b"behind", queue_id=0))
        assert (put.queue_offset, put.status) == (PUTS, lakelog.PutStatus.PUT_OK)
        store.wait_dispatched()
        assert [each.queue_offset for each in store.scan()] == [*range(PUTS + 1)]
    assert not [each for each in os.listdir(path / OWN_DIR) if is_table(each)]
