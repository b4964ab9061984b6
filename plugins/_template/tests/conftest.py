"""Lets a failed check in a contract kit show its values."""

import pytest

pytest.register_assert_rewrite("lakelog_testing")
