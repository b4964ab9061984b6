"""What a test needs of the machine: where it is missing the test skips, but in CI it fails."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def missing(what: str) -> NoReturn:
    """Skip the test, or fail it in CI; call it within a test or a fixture."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI must run this, but {what}")
    pytest.skip(what)
