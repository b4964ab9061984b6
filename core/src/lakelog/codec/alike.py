"""Messages that share all but bodies, queues, tags and keys: the fastest path of a batch put.

The head of one record is packed once; columns are laid over copies of it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import attrs
import numpy as np
from numpy.typing import NDArray

from lakelog.checksum import CRC31_MASK, crc32
from lakelog.codec.bodycolumn import BodyColumn
from lakelog.codec.columns import DISPATCHED, UnlikeError, queue_column
from lakelog.codec.dtypes import SHORT, head_dtype
from lakelog.codec.limits import as_body
from lakelog.codec.messageproperties import are_plain, ended, message_properties
from lakelog.codec.one import GIVEN_BITS
from lakelog.codec.ranks import OneQueueRanks, QueueRanks
from lakelog.codec.recordcrc import PLACEHOLDER
from lakelog.codec.topicblock import topic_block
from lakelog.message import Body, Message, MessageColumns, is_shared

if TYPE_CHECKING:
    from lakelog.codec.encoder import Encoder
    from lakelog.codec.hostpair import HostPair
    from lakelog.queueoffsets import Queue

Ints = NDArray[np.int64]

_SHARED: Final = attrgetter(
    "topic", "properties", "flag", "sys_flag", "born_timestamp_ms", "born_host", "store_host",
    "reconsume_times", "prepared_transaction_offset", "wait_store_ok",
)  # fmt: skip  # a list of names, by their groups
_BODY, _TAGS, _KEYS, _QUEUE_ID = map(attrgetter, ("body", "tags", "keys", "queue_id"))


def as_columns(messages: Sequence[Message]) -> MessageColumns | None:
    """``messages`` as columns, if they share what columns share."""
    if isinstance(messages, MessageColumns):
        return messages
    first = _SHARED(messages[0])
    shared = list(map(_SHARED, messages))
    if shared.count(first) != len(shared):
        return None
    topic, *others = first
    queue_ids = _one_or_all(list(map(_QUEUE_ID, messages)))
    tags, keys = (_one_or_all(list(map(each, messages))) for each in (_TAGS, _KEYS))
    return MessageColumns(topic, list(map(_BODY, messages)), queue_ids, tags, keys, *others)


def _one_or_all(values: list[Any]) -> Any:
    first = values[0]
    return first if is_shared(first) and values.count(first) == len(values) else values


@attrs.frozen(slots=True)
class Properties:
    """Property strings that may begin and end alike.

    :ivar middles: what differs, or ``None`` if nothing does
    """

    front: bytes
    middles: Sequence[bytes] | None = None
    back: bytes = b""

    def lengths(self) -> Any:
        """How long they are: one number, or one per message."""
        same = len(self.front) + len(self.back)
        if self.middles is None:
            return same
        return same + np.fromiter(map(len, self.middles), np.int64, len(self.middles))


def properties_of(columns: MessageColumns, encoder: Encoder) -> Properties:
    """The property strings of ``columns``, with room for record checksums where there are any."""
    tags, keys, more = columns.tags, columns.keys, columns.properties
    back = PLACEHOLDER if encoder.record_crc else b""
    if is_shared(tags) and is_shared(keys):
        shared = message_properties(tags, keys, more)  # type: ignore[arg-type]  # for all alike
        _refuse_lights(shared, encoder)
        return Properties((ended(shared) if back else shared) + back)
    if type(tags) is str and are_plain(tags) and not more:
        text = _printable(keys)
        if text is not None:
            front = f"TAGS\x01{tags}\x02KEYS\x01".encode()
            _refuse_lights(f"{tags} {text}".encode(), encoder)
            encoded = list(map(str.encode, keys))  # type: ignore[arg-type]  # _printable saw texts
            return Properties(front, encoded, b"\x02" + back)
    each_tags = repeat(tags) if is_shared(tags) else tags
    each_keys = repeat(keys) if is_shared(keys) else keys
    count = len(columns)
    each = (each_tags, each_keys, repeat(more, count))
    found = list(map(message_properties, *each))  # type: ignore[arg-type]  # None is repeated
    _refuse_lights(b"\x02".join(found), encoder)
    return Properties(b"", list(map(ended, found)) if back else found, back)


def _printable(keys: Any) -> str | None:
    """All keys in one text, if they are strings without anything odd in them."""
    try:
        text = "".join(keys)
    except TypeError:
        return None
    return text if are_plain(text) else None


def _refuse_lights(properties: bytes, encoder: Encoder) -> None:
    if encoder.max_light_queues is not None and DISPATCHED in properties:
        raise UnlikeError


def bodies_of(columns: MessageColumns) -> tuple[Sequence[Body], Ints]:
    """All bodies, and their lengths."""
    bodies = columns.bodies
    if isinstance(bodies, BodyColumn):
        return bodies.views(), np.diff(bodies.offsets)
    found = list(bodies)
    if set(map(type, found)) != {bytes}:
        found = [as_body(body) for body in found]
    return found, np.fromiter(map(len, found), np.int64, len(found))


def queues_of(
    columns: MessageColumns, encoder: Encoder, queued: bool
) -> tuple[Sequence[Queue], Any, OneQueueRanks | QueueRanks]:
    """The queue of each message, its number, and the ranks in the queues."""
    given, topic, count = columns.queue_ids, columns.topic, len(columns)
    if given is None:
        given = encoder.queues.choose_many(topic, count)
    elif not is_shared(given) and None in given:  # type: ignore[operator]  # a sequence then
        given = [encoder.queue_of(each) for each in columns]
    ids = queue_column([given] if is_shared(given) else list(given))  # type: ignore[arg-type]  # whole numbers
    if len(ids) == 1 and queued:
        queue = (topic, int(ids[0]))
        return [queue] * count, ids, OneQueueRanks(queue, count)
    ids = np.broadcast_to(ids, count)
    queues = list(zip(repeat(topic, count), ids.tolist(), strict=True))
    return queues, ids, QueueRanks(queues, ids.astype(np.int64), np.full(count, queued))


def heads_of(
    columns: MessageColumns, hosts: HostPair, bodies: Sequence[Body], lengths: Ints
) -> NDArray[Any]:
    """All fields before the body, but for sizes, queues and what an append fills in."""
    count, born = len(columns), columns.born_timestamp_ms
    head = hosts.head.pack(
        0, topic_block(columns.topic).magic, 0, 0, columns.flag, 0, 0,
        columns.sys_flag & GIVEN_BITS | hosts.sys_flag,
        time.time_ns() // 1_000_000 if born is None else born, hosts.born, 0, hosts.store,
        columns.reconsume_times, columns.prepared_transaction_offset, 0,
    )  # fmt: skip  # in the order of the format
    heads = np.frombuffer(bytearray(head) * count, head_dtype(len(hosts.born), len(hosts.store)))
    heads["body_crc"] = np.fromiter(map(crc32, bodies), np.uint32, count) & CRC31_MASK
    heads["body_length"] = lengths
    return heads


def joined_records(
    head_bytes: int, topic: bytes, bodies: Sequence[Body], properties: Properties
) -> bytearray:
    """The records back to back, with zeros for their heads and for the properties' lengths."""
    head, front = bytes(head_bytes), topic + bytes(SHORT.itemsize) + properties.front
    end, middles = properties.back, properties.middles
    if middles is None:
        end = front + end
    step = 2 if middles is None else 4
    pieces: list[Any] = [end + head] * (step * len(bodies) + 1)
    pieces[0], pieces[-1] = head, end
    pieces[1::step] = bodies
    if middles is not None:
        pieces[2::step] = [front] * len(bodies)
        pieces[3::step] = middles
    return bytearray().join(pieces)
