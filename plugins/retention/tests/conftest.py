"""Enables detailed assertion messages in contract kits."""

import pytest

pytest.register_assert_rewrite("lakelog_testing")
