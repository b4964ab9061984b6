"""What is no message, and what is not there, is refused with its reason and status."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from core.tests.store.support import a_store, open_small, read_small, tree
from lakelog import Message, PutRefused, PutStatus
from lakelog.errors import LakelogError, OffsetOutOfRange, StoreClosed, StoreError


def test_what_is_no_message(tmp_path: Path) -> None:
    """A mistake of types is an error at once, and hangs nobody who waits for a future."""
    nothing: Any = None
    with open_small(tmp_path) as store:
        log = tree(tmp_path / "commitlog")
        for put in (
            lambda: store.put(nothing),
            lambda: store.put_batch([nothing]),
            lambda: store.put_async(nothing).result(timeout=10),
        ):
            with pytest.raises((TypeError, AttributeError, ValueError, PutRefused)):
                put()
        assert tree(tmp_path / "commitlog") == log
        assert store.put_async(Message("t", b"next")).result(timeout=10).physical_offset == 0


def test_a_store_opened_for_reading_refuses_puts(tmp_path: Path) -> None:
    a_store(tmp_path, 3)
    before = tree(tmp_path)
    with read_small(tmp_path) as store:
        assert store.read_only
        for put in (store.put, store.put_async, lambda each: store.put_batch([each])):
            with pytest.raises(PutRefused, match="mode='write'") as caught:
                put(Message("t", b""))
            assert caught.value.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert tree(tmp_path) == before


@pytest.mark.parametrize("attached", [False, True])
def test_a_closed_store_refuses_everything(tmp_path: Path, attached: bool) -> None:
    with open_small(tmp_path) if attached else nullcontext():
        store = open_small(tmp_path)
        store.put(Message("t", b""))
        store.close()
        store.close()
    assert "closed" in repr(store)
    with pytest.raises(StoreClosed):
        store.look_up(0)
    with pytest.raises(StoreClosed):
        store.scan()
    for put in (store.put, store.put_async, lambda each: store.put_batch([each])):
        with pytest.raises(PutRefused) as caught:
            put(Message("t", b""))
        assert caught.value.status is PutStatus.SERVICE_NOT_AVAILABLE


@pytest.mark.parametrize("where", [-1, 1, 10**15, 2**70, "00" * 16, "FF" * 16])
@pytest.mark.parametrize("mode", ["owner", "read"])
def test_looking_up_what_is_not_there(where: int | str, mode: str, tmp_path: Path) -> None:
    a_store(tmp_path, 3)
    with open_small(tmp_path) if mode == "owner" else read_small(tmp_path) as store:
        if where == "00" * 16:
            assert store.look_up(where).physical_offset == 0
            return
        with pytest.raises(LakelogError) as caught:
            store.look_up(where)
        assert where == 1 or isinstance(caught.value, OffsetOutOfRange)
        with pytest.raises(ValueError, match="message id"):
            store.look_up("no id")


def test_errors_of_the_system_are_store_errors(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError):
        open_small(tmp_path / "file" / "store")
