"""The fixture ``lakelog_store``, for tests of programs that keep messages in a store.

::

    def test_orders_survive(lakelog_store):
        take_order(lakelog_store.store, "one espresso")
        again = lakelog_store.crash()  # as if the process had been killed here
        assert [each.body for each in again.scan()] == [b"one espresso"]

pytest finds it once ``lakelog-testing`` is installed. It is a package of its own because pytest
imports it in every run, before a project can register the contract kits for rewritten checks.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from lakelog import Store

SMALL: Final[dict[str, Any]] = {
    "segment_size_bytes": 1 << 20,
    "preallocate": False,
    "allocation_step_bytes": 64 << 10,
}
_INDEX: Final = {"slots": 1_000, "entries": 4_000}


class StoreUnderTest:
    """A store of small files in a folder of the test, with which it is removed.

    :ivar path: the present store directory; another one after :meth:`crash`
    :ivar store: the open store
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._settings: dict[str, Any] = dict(SMALL)
        self._crashes = 0
        self.path = folder / "store"
        self.store: Store = self._open({})

    def reopen(self, **settings: Any) -> Store:
        """Close the store and open it again, with further settings for this and all later opens."""
        self.store.close()
        self.store = self._open(settings)
        return self.store

    def crash(self, **settings: Any) -> Store:
        """Open the store that a kill of the process would leave now; the open recovers it.

        The files are copied as they are, while other threads may write to them, and the copy is
        opened. The former store is closed. Bytes that only the kernel has are in the copy: a power
        cut loses more, which the crash simulator shows (``python -m lakelog_testing.crash``).
        """
        from lakelog_testing.samples import copy_store

        self._crashes += 1
        copy = copy_store(self.path, self._folder / f"store-{self._crashes}")
        self.store.close()
        self.path = copy
        self.store = self._open(settings)
        return self.store

    def _open(self, settings: dict[str, Any]) -> Store:
        from importlib.util import find_spec

        import lakelog

        self._settings |= settings
        index = {} if find_spec("lakelog_hash_index") is None else {"hash_index": _INDEX}
        return lakelog.open(self.path, **{**index, **self._settings})


@pytest.fixture
def lakelog_store(tmp_path: Path) -> Iterator[StoreUnderTest]:
    """An open store of this test alone."""
    made = StoreUnderTest(tmp_path / "lakelog")
    yield made
    made.store.close()
