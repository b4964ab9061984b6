"""Records for clients that differ from the stored ones."""

from __future__ import annotations

from typing import Final

import attrs

from lakelog import Message, StoredMessage
from lakelog.format.queue_offsets import QueueOffsets
from lakelog_broker.appending import restored
from lakelog_broker.remoting.frame import MAX_FRAME_BYTES
from lakelog_format.codec.encoder import Encoder, RoundRobin
from lakelog_format.codec.limits import Limits

_ENCODER: Final = Encoder(
    Limits(MAX_FRAME_BYTES, MAX_FRAME_BYTES), "127.0.0.1:0", False, None, RoundRobin(1)
)


def record_with_own_topic(stored: StoredMessage) -> bytes:
    """Encode a message that was set aside with its own topic and queue id, at its stored offsets.

    All properties are kept. Raises ``ValueError`` if the message has no own topic.
    """
    own = restored(stored)
    message: Message = attrs.evolve(
        own,
        properties=stored.properties_bytes,
        store_host=stored.store_host,
        prepared_transaction_offset=stored.prepared_transaction_offset,
    )
    record = _ENCODER.encode_one(message)
    offsets = QueueOffsets({record.queue: stored.queue_offset})
    record.place(stored.physical_offset, 2 * MAX_FRAME_BYTES, offsets, stored.store_timestamp_ms)
    return bytes(record.buffer)
