"""What a test needs of the machine: where it is missing the test skips, but in CI it fails."""

from __future__ import annotations

import importlib
import os
from typing import Any, NoReturn

import pytest


def missing(what: str) -> NoReturn:
    """Skip the test, or fail it in CI; call it within a test or a fixture."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI must run this, but {what}")
    pytest.skip(what)


def module(name: str) -> Any:
    """The module ``name``."""
    try:
        return importlib.import_module(name)
    except ImportError:
        missing(f"{name} is not installed")
