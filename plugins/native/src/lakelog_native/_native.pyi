from collections.abc import Sequence
from typing import Any

from lakelog.codec.encoder import Encoder
from lakelog.message import Message

class Batch: ...

class BatchEncoder:
    def __init__(self, encoder: Encoder, classes: Any) -> None: ...
    def encode(self, messages: Sequence[Message]) -> Any: ...
