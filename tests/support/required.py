"""Requirements of tests on the machine: without one a test is skipped; in CI it fails."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def missing(what: str) -> NoReturn:
    """Skip the test, or fail it in CI; to be called within a test or a fixture."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI must run this, but {what}")
    pytest.skip(what)
