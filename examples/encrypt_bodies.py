"""How are bodies encrypted in storage, and keys replaced?

By an append callback like that of compress_bodies.py, with AES-GCM of the package ``cryptography``.
Topics, tags, keys and properties stay readable, because queues and index need them. Use a key for
at most 2**32 messages (NIST SP 800-38D), because each has a random nonce of 12 bytes.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence

import attrs
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import lakelog
from lakelog.builtin import RocketmqAppendCallback
from lakelog.errors import DecodeFailed
from lakelog.format.encoder import EncodedBatch
from lakelog.hooks import Context, Factory, Kind
from lakelog.hooks.hookspecs import hookimpl
from lakelog.message import Message, PropertiesLike, StoredMessage

NONCE_BYTES = 12
KEY_NAME = "BODY_KEY"  # the property that names a message's key


@attrs.frozen
class EncryptSettings:
    """:ivar keys: each ``name:hex``, newest first; ``repr=False`` keeps them to this process."""

    keys: tuple[str, ...] = attrs.field(repr=False)


class Encrypting:
    """RocketMQ's records, whose bodies are a nonce and a ciphertext bound to the topic."""

    def __init__(self, settings: EncryptSettings, context: Context) -> None:
        """Create the ciphers; invalid keys raise here, when the store opens."""
        pairs = [each.partition(":") for each in settings.keys]
        self.ciphers = {name: AESGCM(bytes.fromhex(digits)) for name, _, digits in pairs}
        self.newest = pairs[0][0]
        self.inner = RocketmqAppendCallback.of(context.core)
        self.place = self.inner.place  # fields that depend on the place are the same

    def encode(self, messages: Sequence[Message]) -> EncodedBatch:
        """Encode one message or many, outside any lock."""
        return self.inner.encode([self._encrypted(each) for each in messages])

    def _encrypted(self, message: Message) -> Message:
        body = getattr(message, "body", None)
        if not isinstance(body, bytes | bytearray | memoryview):
            return message  # the built-in callback raises the error
        nonce = os.urandom(NONCE_BYTES)
        sealed = self.ciphers[self.newest].encrypt(nonce, bytes(body), message.topic.encode())
        properties = self._marked(message.properties)
        return attrs.evolve(message, body=nonce + sealed, properties=properties)

    def _marked(self, given: PropertiesLike | None) -> PropertiesLike:
        if not isinstance(given, bytes):
            return {**(given or {}), KEY_NAME: self.newest}
        mark = f"{KEY_NAME}\1{self.newest}\2".encode()
        return given + mark if given.endswith(b"\2") or not given else given + b"\2" + mark

    def decode(self, messages: Sequence[StoredMessage]) -> Sequence[StoredMessage]:
        """Return the same messages with the bodies that were put."""
        return [self._decrypted(each) for each in messages]

    def _decrypted(self, message: StoredMessage) -> StoredMessage:
        name = message.properties.get(KEY_NAME)
        if name is None:
            return message  # it was put before encryption began
        if name not in self.ciphers:
            raise ValueError(f"the key {name!r} is not in the setting encrypt.keys")
        nonce, sealed = message.body[:NONCE_BYTES], message.body[NONCE_BYTES:]
        body = self.ciphers[name].decrypt(nonce, sealed, message.topic.encode())
        return attrs.evolve(message, body=body)


@hookimpl
def lakelog_append_callbacks() -> list[Factory]:
    """Offer it; this module is the plugin."""
    return [Factory(Kind.APPEND_CALLBACK, "encrypt", EncryptSettings, Encrypting)]


def opened(path: str, *keys: str) -> lakelog.Store:
    """Open the store with these keys."""
    section = {"keys": keys}
    plugins = [sys.modules[__name__]]
    return lakelog.open(
        path, plugins=plugins, append="encrypt", encrypt=section, segment_size_bytes="1MiB"
    )


def main(path: str) -> None:
    """Put with one key, then with a new one; read with both, with one, and with none."""
    first, second = (f"{name}:{os.urandom(32).hex()}" for name in ("2025", "2026"))
    with opened(path, first) as store:
        store.put(Message("cards", b"4111 1111", queue_id=0))
    with opened(path, second, first) as store:  # new messages have the new key
        store.put(Message("cards", b"5500 0000", queue_id=0))
        print("with both keys:", [bytes(each.body) for each in store.scan()])
    with opened(path, second) as store:
        try:
            store.look_up(0)
        except DecodeFailed as error:
            print("without the old one:", str(error).partition(": ")[2])
    with lakelog.open(path, mode="read", plugins=[], append="rocketmq") as store:
        print("as stored:", [len(each.body) for each in store.scan()], "bytes")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(f"{temporary}/store")
