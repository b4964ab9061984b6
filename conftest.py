"""For every test: asserts of the contract kits tell values, and no example has a deadline.

How long an example of Hypothesis takes on a busy machine shows nothing.
"""

import pytest
from hypothesis import settings

pytest.register_assert_rewrite("lakelog.testing")  # before any other conftest has imported it
settings.register_profile("unhurried", parent=settings(), deadline=None)
settings.load_profile("unhurried")
