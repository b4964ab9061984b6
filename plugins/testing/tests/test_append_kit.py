"""The kit for append callbacks accepts the core's encoder, and finds mistakes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest

from core.tests.registry.samples import CONTEXT
from examples.compress_bodies import Compressing, CompressSettings
from lakelog.format.encoder import EncodedBatch, Encoder, Limits, RoundRobin
from lakelog.message import Message, StoredMessage
from lakelog.results import AppendStatus
from lakelog_testing import AppendCallbackContract

pytestmark = pytest.mark.both_ways


class Plain:
    """The core's encoder."""

    def __init__(self) -> None:
        limits = Limits.of(4 << 20, 1 << 30)
        self.encoder = Encoder(limits, "127.0.0.1:10911", False, None, RoundRobin(4))

    def encode(self, messages: Sequence[Message]) -> EncodedBatch:
        return self.encoder.encode(messages)

    def place(self, batch: EncodedBatch, *args: Any, **kwargs: Any) -> AppendStatus:
        return batch.place(*args, **kwargs)


class TestPlain(AppendCallbackContract):
    def make(self) -> Plain:
        return Plain()


class Elsewhere(Plain):
    """Places records one byte off."""

    def place(self, batch: EncodedBatch, position: int, *args: Any, **kwargs: Any) -> AppendStatus:
        return super().place(batch, position + 1, *args, **kwargs)


class Advancing(Plain):
    """Advances queue offsets before the bytes are written."""

    def place(self, batch: EncodedBatch, *args: Any, **kwargs: Any) -> AppendStatus:
        status = super().place(batch, *args, **kwargs)
        batch.advance(args[2])
        return status


class Roomy(Plain):
    """Leaves no room for the blank record."""

    def place(
        self, batch: EncodedBatch, position: int, remaining: int, *args: Any, **kwargs: Any
    ) -> AppendStatus:
        return super().place(batch, position, remaining + 8, *args, **kwargs)


class Lenient(Plain):
    """Encodes messages that no record can hold."""

    def encode(self, messages: Sequence[Message]) -> EncodedBatch:
        return super().encode([Message("x", b"") for _ in messages])


class TestCompressing(AppendCallbackContract):
    def make(self) -> Compressing:
        return Compressing(CompressSettings(from_bytes=1), CONTEXT)


class Unread(Compressing):
    """Changes stored bodies, and cannot restore them."""

    decode = None  # type: ignore[assignment]  # wrong on purpose


class Unmarked(Plain):
    """Reverses bodies, without marking the records."""

    def encode(self, messages: Sequence[Message]) -> EncodedBatch:
        return super().encode(
            [attrs.evolve(each, body=bytes(each.body)[::-1]) for each in messages]
        )

    def decode(self, messages: Sequence[StoredMessage]) -> Sequence[StoredMessage]:
        return [attrs.evolve(each, body=each.body[::-1]) for each in messages]


class Renaming(Plain):
    """Stores other keys than those given."""

    def decode(self, messages: Sequence[StoredMessage]) -> Sequence[StoredMessage]:
        return [attrs.evolve(each, properties_bytes=b"") for each in messages]


class Changing(Compressing):
    """Modifies the messages that it receives."""

    def encode(self, messages: Sequence[Message]) -> EncodedBatch:
        for each in messages:
            if isinstance(each.body, bytes):
                each.body = each.body + b"!"
        return super().encode(messages)


def compressing(kind: type[Compressing]) -> Callable[[], Any]:
    return lambda: kind(CompressSettings(from_bytes=1), CONTEXT)


@pytest.mark.parametrize(
    ("made", "test", "argument"),
    [
        (Elsewhere, "what_is_placed_are_records_that_can_be_read", 1),
        (Lenient, "what_is_placed_are_records_that_can_be_read", 8),
        (Advancing, "placing_leaves_the_queue_offsets_alone", 1),
        (Advancing, "each_queue_counts_on", 100),
        (Roomy, "a_batch_that_does_not_fit_fits_into_the_next_segment", 2),
        (Lenient, "a_message_that_no_record_can_hold", Message("", b"")),
        (compressing(Unread), "what_is_placed_are_records_that_can_be_read", 8),
        (compressing(Unread), "messages_of_columns_can_be_read", 8),
        (Unmarked, "decoding_leaves_messages_that_another_callback_stored", 8),
        (Renaming, "decoding_changes_bodies_and_what_is_said_of_them_only", 8),
        (compressing(Changing), "encoding_leaves_the_messages_alone", 8),
    ],
)
def test_each_mistake_is_found(made: Callable[[], Any], test: str, argument: object) -> None:
    class Kit(AppendCallbackContract):
        def make(self) -> Any:
            return made()

    with pytest.raises((AssertionError, pytest.fail.Exception)):
        getattr(Kit(), f"test_{test}")(argument)
