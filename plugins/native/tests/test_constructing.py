"""Calls of ``Message``: the compiled constructor, and ``__init__`` by ``type.__call__``."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog import Message
from lakelog_native.accelerator import Native

NAMES = [field.name for field in attrs.fields(Message)]
VALUES = st.one_of(st.none(), st.integers(), st.text(), st.binary(), st.lists(st.text()))
assert Native.seam  # loads the extension


class Named(Message):
    """A subclass with its own ``__init__``."""

    def __init__(self, body: bytes) -> None:
        super().__init__("named", body, tags="own")


@attrs.define(slots=True)
class Longer(Message):
    """A subclass with one more field."""

    more: int = 7


def outcome(call: Callable[[], Message]) -> object:
    try:
        made = call()
    except TypeError as error:
        return str(error)
    return type(made), [getattr(made, name) for name in NAMES]


@given(
    st.lists(VALUES, max_size=len(NAMES) + 2),
    st.dictionaries(st.sampled_from([*NAMES, "topics"]), VALUES),
)
def test_any_arguments(args: list[Any], named: dict[str, Any]) -> None:
    natively = outcome(lambda: Message(*args, **named))
    assert natively == outcome(lambda: type.__call__(Message, *args, **named))


def test_a_name_that_is_not_interned() -> None:
    name = b"tags".decode()
    made = Message("t", b"", **{name: "x"})  # type: ignore[arg-type]  # a text, as it must be
    assert made.tags == "x"


def test_it_runs_no_init() -> None:
    called = list[str]()
    sys.setprofile(lambda frame, *_: called.append(frame.f_code.co_name))
    try:
        Message("t", b"", tags="x")
        natively = called.count("__init__")
        type.__call__(Message, "t", b"", tags="x")
    finally:
        sys.setprofile(None)
    assert natively == 0
    assert called.count("__init__") == 2, "its call and its return"


def test_subclasses_have_their_own() -> None:
    named = Named(b"x")
    assert (type(named), named.topic, named.tags) == (Named, "named", "own")
    longer = Longer("t", b"", more=9)
    assert (longer.more, longer.flag) == (9, 0)


def test_it_holds_each_value_once() -> None:
    body = bytearray(b"body")
    before = sys.getrefcount(body)
    messages = [Message("t", body, tags="x") for _ in range(10)]
    assert sys.getrefcount(body) == before + 10
    for wrong in range(3):
        with pytest.raises(TypeError):
            Message("t", body, body=wrong)  # type: ignore[misc, arg-type]  # twice on purpose
    del messages
    gc.collect()
    assert sys.getrefcount(body) == before


def test_a_cycle_is_collected() -> None:
    class Properties(dict[str, Any]):
        """A dict that accepts weak references."""

    properties = Properties()
    properties["self"] = Message("t", b"", properties=properties)
    watched = weakref.ref(properties)
    del properties
    gc.collect()
    assert watched() is None
