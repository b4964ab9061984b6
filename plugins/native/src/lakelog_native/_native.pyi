from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lakelog.codec.encoder import Encoder
from lakelog.message import Message, StoredMessage

class Batch: ...

class BatchEncoder:
    def __init__(self, encoder: Encoder, classes: Any) -> None: ...
    def encode(self, messages: Sequence[Message]) -> Any: ...

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

def read_run(
    view: memoryview, base_offset: int, *, verify: bool, sealed: bool, max_records: int
) -> bytes | None: ...
def sound_records(
    view: memoryview,
    starts: NDArray[np.int64],
    offsets: NDArray[np.int64],
    sizes: NDArray[np.int32],
    *,
    verify: bool,
) -> tuple[bytes, bytes] | None: ...
