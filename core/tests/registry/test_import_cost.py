"""What only errors and listings need is not imported when a store opens."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
before = set(sys.modules)
from lakelog.registry import Registry
Registry.load(None, {})
print(*set(sys.modules) - before)
"""
SLOW = {"difflib", "numpy", "pytest", "asyncio"}


def test_loading_imports_nothing_that_is_slow() -> None:
    run = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert set(run.stdout.split()) & SLOW == set()
