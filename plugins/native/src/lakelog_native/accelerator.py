"""The accelerator ``native``: connects the extension with lakelog's classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, Final

import attrs

from lakelog.format.encoder import EncodedBatch, Encoder, message_properties, topic_block
from lakelog.message import Message, MessageColumns, StoredMessage
from lakelog.results import AppendStatus, BatchResult, PutResult, PutStatus
from lakelog_native import _native

SEAM: Final = 15
"""The version of lakelog's accelerator interface that the extension implements."""

EncodedBatch.register(_native.Batch)


def _column(data: bytes, kind: str) -> Any:
    import numpy as np

    return np.frombuffer(data, kind)


_CLASSES: Final = SimpleNamespace(
    Message=Message,
    MessageColumns=MessageColumns,
    PutResult=PutResult,
    BatchResult=BatchResult,
    PLACED=AppendStatus.PUT_OK,
    END_OF_FILE=AppendStatus.END_OF_FILE,
    topic_block=topic_block,
    message_properties=message_properties,
    PUT_OK=PutStatus.PUT_OK,
    from_buffer=_column,
)

with suppress(TypeError):  # this Python lays out its classes in an unknown way: `__init__` does it
    _native.construct_natively(
        Message,
        [
            (each.name,) if each.default is attrs.NOTHING else (each.name, each.default)
            for each in attrs.fields(Message)
        ],
    )


class NativePutting:
    """Appends by compiled code; a batch that is left to Python is appended by ``plainly``."""

    def __init__(self, putter: _native.Putter, plainly: Callable[[EncodedBatch], int]) -> None:
        self.put = putter.put
        self.bound = putter.bound
        self.append_batch = putter.append_batch
        self._plainly = plainly

    def append(self, batch: EncodedBatch) -> int:
        """Append ``batch``; return the offset behind it."""
        end = self.append_batch(batch)
        return self._plainly(batch) if end is None else end


class Native:
    """The extension, one object per process."""

    seam = SEAM
    read_run = staticmethod(_native.read_run)
    plain_records = staticmethod(_native.plain_records)
    sound_records = staticmethod(_native.sound_records)
    queue_units = staticmethod(_native.queue_units)
    keys = staticmethod(_native.keys)
    index_entries = staticmethod(_native.index_entries)
    set_slots = staticmethod(_native.set_slots)
    follow_entries = staticmethod(_native.follow_entries)
    append_lock = _native.AppendLock
    waiters = _native.Waiters
    settle = staticmethod(_native.settle)
    deliveries = staticmethod(_native.deliveries)
    bits_of = staticmethod(_native.bits_of)

    def __init__(self) -> None:
        self._decoder = decoder = _native.Decoder(StoredMessage)
        self.message = decoder.message
        self.messages = decoder.messages

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a constructor call, as another process needs its own."""
        return Native, ()

    def encoding(
        self, encoder: Encoder
    ) -> Callable[[Sequence[Message]], EncodedBatch | None] | None:
        """Return an encoder of several messages in one pass."""
        encode: Callable[[Sequence[Message]], EncodedBatch | None]
        encode = _native.BatchEncoder(encoder, _CLASSES).encode
        return encode

    def putting(self, encoder: Encoder, log: Any) -> NativePutting:
        """Return an object that appends messages and batches."""
        return NativePutting(_native.Putter(encoder, _CLASSES, log), log.append)

    def lookups(self, parts: Any) -> _native.Lookups:
        """Return an object that looks up messages."""
        return _native.Lookups(self._decoder, parts)
