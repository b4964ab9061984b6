"""Both ways of one function: the accelerator's, and plain Python's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import lakelog
from lakelog import Message, Store, accelerate
from lakelog_native.accelerator import Native

Result = TypeVar("Result")
NATIVE = Native()


def with_native(call: Callable[[], Result]) -> Result:
    """The result of ``call`` with the accelerator."""
    return _using(NATIVE, call)


def both(call: Callable[[], Result]) -> tuple[Result, Result]:
    """The results of ``call`` with and without the accelerator."""
    return _using(NATIVE, call), _using(None, call)


def _using(accelerator: Native | None, call: Callable[[], Result]) -> Result:
    before = accelerate.current()
    try:
        accelerate.use(accelerator)
        return call()
    finally:
        accelerate.use(before)


ROLES: Final = ("owner", "reader", "early reader", "reader alone")


@contextmanager
def in_role(
    role: str, path: Path, fill: Callable[[Store], object], **settings: Any
) -> Iterator[Store]:
    """A store as owner, as reader alone, or as reader beside an owner, before or after its puts."""
    with lakelog.open(path, **settings) as owner:
        if role == "early reader":
            place = owner.put(Message("other", b"", queue_id=0))
            with lakelog.open(path, mode="read", **settings) as reader:
                assert reader.wait_dispatched(place.end_offset)
                fill(owner)
                assert reader.wait_dispatched(owner.max_offset)
                yield reader
            return
        fill(owner)
        if role == "owner":
            yield owner
            return
        if role == "reader":
            with lakelog.open(path, mode="read", **settings) as reader:
                yield reader
            return
    with lakelog.open(path, mode="read", **settings) as reader:
        yield reader
