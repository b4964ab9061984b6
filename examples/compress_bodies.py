"""How are bodies changed in storage, for example compressed?

By an append callback that wraps the built-in one: `encode` passes it changed bodies, and `decode`
restores them in every kind of read. This one sets the flag by which RocketMQ's own clients
recognise bodies compressed with zlib. encrypt_bodies.py does the same with a cipher.
"""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import attrs

import lakelog
from lakelog.builtin import RocketmqAppendCallback
from lakelog.format.encoder import EncodedBatch
from lakelog.format.layout import COMPRESSED, COMPRESSION_MASK, COMPRESSION_SHIFT
from lakelog.hooks import Context, Factory, Kind
from lakelog.hooks.hookspecs import hookimpl
from lakelog.message import Message, StoredMessage

ZLIB = COMPRESSED | 3 << COMPRESSION_SHIFT  # RocketMQ's number for zlib is 3
PACKING = COMPRESSED | COMPRESSION_MASK


@attrs.frozen
class CompressSettings:
    """:ivar from_bytes: shorter bodies stay as they are; :ivar level: of zlib, 1 to 9."""

    from_bytes: int = 256
    level: int = 6


class Compressing:
    """RocketMQ's records, whose bodies are compressed."""

    def __init__(self, settings: CompressSettings, context: Context) -> None:
        """Wrap the callback of a store with these settings."""
        self.settings = settings
        self.inner = RocketmqAppendCallback.of(context.core)
        self.place = self.inner.place  # fields that depend on the place are the same

    def encode(self, messages: Sequence[Message]) -> EncodedBatch:
        """Encode one message or many, outside any lock."""
        return self.inner.encode([self._packed(each) for each in messages])

    def _packed(self, message: Message) -> Message:
        body = getattr(message, "body", None)
        if not isinstance(body, bytes | bytearray | memoryview):
            return message  # the built-in callback raises the error
        if len(body) < self.settings.from_bytes or message.sys_flag & COMPRESSED:
            return message  # short, or already compressed by a client
        packed = zlib.compress(body, self.settings.level)
        return attrs.evolve(message, body=packed, sys_flag=message.sys_flag & ~PACKING | ZLIB)

    def decode(self, messages: Sequence[StoredMessage]) -> Sequence[StoredMessage]:
        """Return the same messages with the bodies that were put."""
        return [self._unpacked(each) for each in messages]

    @staticmethod
    def _unpacked(message: StoredMessage) -> StoredMessage:
        if message.sys_flag & PACKING != ZLIB:
            return message
        body = zlib.decompress(message.body)
        return attrs.evolve(message, body=body, sys_flag=message.sys_flag & ~PACKING)


plugin = ModuleType("compressing")


@hookimpl
def lakelog_append_callbacks() -> list[Factory]:
    """Offer the strategy under a name for settings; in a package this is in the plugin module."""
    return [Factory(Kind.APPEND_CALLBACK, "compress", CompressSettings, Compressing)]


vars(plugin)["lakelog_append_callbacks"] = lakelog_append_callbacks


def main() -> None:
    """Put a message, and read it with the same settings and without them."""
    with tempfile.TemporaryDirectory() as path:
        given: dict[str, Any] = {"plugins": [plugin], "append": "compress", "flush": "none"}
        body = b"the same words again and again " * 100
        with lakelog.open(path, **given) as store:
            put = store.put(Message("words", body, keys="k", queue_id=0))
            assert store.look_up(put.physical_offset).body == body
        with lakelog.open(path, mode="read", **given) as reader:  # the same settings
            (message,) = reader.get("words", 0, 0).messages
            assert message.body == body
        with lakelog.open(path, mode="read", plugins=[]) as stranger:  # without them: as stored
            stored = stranger.look_up(put.physical_offset)
            assert zlib.decompress(stored.body) == body
        print(f"{len(body)} bytes were put, {len(stored.body)} are stored")


if __name__ == "__main__":
    main()
