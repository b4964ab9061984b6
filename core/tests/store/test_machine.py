"""Any sequence of what users do leaves the store and a model in plain Python of one mind."""

from __future__ import annotations

from types import MappingProxyType

from hypothesis import settings

from lakelog_testing import StoreMachine


class CoreAlone(StoreMachine):
    """Nothing but what the core brings."""

    settings = MappingProxyType(
        {"plugins": [], "consume-queue": {"file_entries": 7}, "preallocate": False}
    )


TestCoreAlone = CoreAlone.TestCase
TestCoreAlone.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
