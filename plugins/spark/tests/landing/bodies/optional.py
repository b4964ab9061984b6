"""Packages of extras: where one is absent its tests skip, but in CI they fail."""

from __future__ import annotations

import importlib
import os
from typing import Any

import pytest


def needed(name: str) -> Any:
    """The module ``name``; call it within a test or a fixture."""
    try:
        return importlib.import_module(name)
    except ImportError:
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI must have {name}")
        pytest.skip(f"{name} is not installed")
