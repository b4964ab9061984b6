from collections.abc import Sequence
from mmap import mmap
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lakelog.accelerate import PlainRecords
from lakelog.codec.encoder import Encoder
from lakelog.message import Message, StoredMessage

class Batch: ...

class BatchEncoder:
    def __init__(self, encoder: Encoder, classes: Any) -> None: ...
    def encode(self, messages: Sequence[Message]) -> Any: ...

class AppendLock:
    def __init__(
        self, descriptor: int, byte: int, memory: memoryview, layout: ModuleType
    ) -> None: ...
    def take(self) -> int: ...
    def acquire(self, timeout_s: float) -> bool: ...
    def release(self) -> None: ...

class Putter:
    def __init__(self, encoder: Encoder, classes: Any, log: Any) -> None: ...
    def put(self, message: Message) -> Any: ...
    def bound(self, topic: str, tags: str | None, queue_id: int | None) -> Any: ...

class Decoder:
    def __init__(self, kind: type[StoredMessage]) -> None: ...
    def message(
        self, view: memoryview, at: int, offset: int | None, *, verify: bool
    ) -> StoredMessage | None: ...
    def messages(
        self,
        view: memoryview,
        starts: NDArray[np.int64],
        sizes: NDArray[np.int32],
        offsets: NDArray[np.int64] | None,
        *,
        verify: bool,
    ) -> list[StoredMessage] | None: ...

class Lookups:
    def __init__(self, decoder: Decoder, parts: Any) -> None: ...
    def close(self) -> None: ...
    def get(
        self, topic: Any, queue_id: Any, offset: Any, max_messages: Any, tag_filter: Any = None
    ) -> Any: ...
    def query(
        self, topic: Any, key: Any, since_ms: Any, until_ms: Any, max_messages: Any
    ) -> list[StoredMessage] | None: ...
    def offset_by_time(
        self, topic: Any, queue_id: Any, timestamp_ms: Any, boundary: Any
    ) -> int | None: ...

def construct_natively(
    kind: type[Message], fields: list[tuple[str] | tuple[str, object]]
) -> None: ...
def read_run(
    view: memoryview, base_offset: int, *, verify: bool, sealed: bool, max_records: int
) -> memoryview | None: ...
def plain_records(
    descriptor: int, start: int, length: int, *, sealed: bool
) -> PlainRecords | None: ...
def sound_records(
    view: memoryview,
    starts: NDArray[np.int64],
    offsets: NDArray[np.int64],
    sizes: NDArray[np.int32],
    *,
    verify: bool,
    pack_bodies: bool,
) -> tuple[bytes, memoryview, tuple[memoryview, memoryview] | None] | None: ...
def queue_units(
    view: memoryview, starts: NDArray[np.int64]
) -> tuple[memoryview, memoryview, list[tuple[str, int, int, int | None]]] | None: ...
def keys(view: memoryview, starts: NDArray[np.int64]) -> tuple[bytes, bytes] | None: ...
def index_entries(
    file: mmap,
    slots: int,
    room: int,
    first: int,
    begin_ms: int,
    view: memoryview,
    base_offset: int,
    starts: NDArray[np.int64],
) -> tuple[memoryview, memoryview, int, tuple[int, int], int] | None: ...
def set_slots(file: mmap, slots: int, heads: memoryview) -> None: ...
def follow_entries(
    entries: NDArray[np.uint8], first: int, last_offset: int, heads: NDArray[np.int32]
) -> tuple[int, int] | None: ...
