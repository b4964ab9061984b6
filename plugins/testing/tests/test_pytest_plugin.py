"""The fixture lakelog_store, in the tests of a user."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

TESTS: Final = """
import sys
import lakelog

def test_nothing_is_imported_before_it_is_used():
    assert not {"numpy", "hypothesis", "lakelog_queues"} & set(sys.modules)

def test_a_store_is_empty_and_open(lakelog_store):
    assert list(lakelog_store.store.scan()) == []
    lakelog_store.store.put(lakelog.Message("orders", b"one"))

def test_each_test_has_its_own(lakelog_store):
    assert list(lakelog_store.store.scan()) == []

def test_a_crash_keeps_what_was_put(lakelog_store):
    lakelog_store.store.put(lakelog.Message("orders", b"one", queue_id=0))
    before = lakelog_store.path
    again = lakelog_store.crash()
    assert again.recovery is not None and not again.recovery.clean
    assert [each.body for each in again.scan()] == [b"one"]
    assert lakelog_store.store is again and lakelog_store.path != before
    assert lakelog_store.store.put(lakelog.Message("orders", b"two", queue_id=0)).queue_offset == 1

def test_settings_stay(lakelog_store):
    store = lakelog_store.reopen(flush="inline")
    assert store.settings.core.flush == "inline"
    assert lakelog_store.crash().settings.core.flush == "inline"
"""


def test_the_fixture_works_in_a_project_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "test_shop.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout
