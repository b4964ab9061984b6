"""Keys too are found as a model in plain Python says, whatever a user does."""

from __future__ import annotations

from types import MappingProxyType

from hypothesis import settings

from lakelog_testing import StoreMachine


class WithIndex(StoreMachine):
    """Many small index files, and queues of a few units a file."""

    settings = MappingProxyType(
        {
            "preallocate": False,
            "dispatchers": ["consume-queue", "hash-index"],
            "consume-queue": {"file_entries": 7},
            "hash-index": {"slots": 5, "entries": 20},
        }
    )
    has_key_index = True


TestWithIndex = WithIndex.TestCase
TestWithIndex.settings = settings(max_examples=20, stateful_step_count=30, deadline=None)
