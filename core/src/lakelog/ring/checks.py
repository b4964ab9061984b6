"""What a producer's records must be before the owner places them; nothing of a peer is trusted.

The bytes checked are the owner's own copy. What :meth:`lakelog.appender.Appender.put` would refuse
does not pass: the same limits, topics, hosts and property strings hold. Few records are looked at
one by one, many in columns.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import attrs

from lakelog.checksum import CRC31_MASK, crc32
from lakelog.codec.encoded import EncodedBatch
from lakelog.codec.frame import Frame, read_frame
from lakelog.codec.hostpair import HostPair, host_pair
from lakelog.codec.light import EncodedLight
from lakelog.codec.limits import Limits
from lakelog.codec.one import EncodedOne
from lakelog.codec.pieces import EncodedPieces
from lakelog.codec.topicblock import topic_block
from lakelog.errors import CorruptRecord, IllegalMessage, RingNonsense
from lakelog.hosts import decode_host, host_bytes
from lakelog.layout import AT_BODY_CRC, AT_BORN_HOST, PREFIX
from lakelog.properties import (
    INNER_MULTI_DISPATCH,
    decode_properties,
    feeds_light_queues,
    light_queues,
)
from lakelog.ring.several import EncodedSeveral
from lakelog.ring.texts import check_properties
from lakelog.ring.usual import usual_one
from lakelog.sysflag import BORN_HOST_V6, PREPARED, STORE_HOST_V6

if TYPE_CHECKING:
    from lakelog.ring.parts import Parts

DISPATCHED: Final = INNER_MULTI_DISPATCH.encode()
_FEW: Final = 12
"""So many records are checked one by one in less time than NumPy takes to begin."""


@attrs.frozen
class Checks:
    """What the settings of the owner ask of records.

    :ivar sealed: whether records end with room for their checksum (``record_crc``)
    :ivar max_light_queues: how many light queues there may be, or ``None`` if there are none
    :ivar verify_bodies: whether bodies are held against their checksums, which the producer
        computed; without it, a producer that damages them itself gets records into the log that
        readers and recovery report as damaged
    """

    limits: Limits
    sealed: bool = False
    max_light_queues: int | None = None
    verify_bodies: bool = False

    def batch_of(self, parts: Parts) -> EncodedBatch:
        """The batch of records that are what they must be.

        Raises :class:`~lakelog.errors.RingNonsense`, and nothing else.
        """
        if parts.sealed != self.sealed:
            raise RingNonsense(f"records with seals: {parts.sealed}; the owner wants {self.sealed}")
        try:
            if len(parts.sizes) > _FEW:
                return self._many(parts)
            return self._pieces(parts)
        except IllegalMessage as error:
            raise RingNonsense(f"a put of it would be refused: {error}") from None
        except CorruptRecord as error:
            raise RingNonsense(f"no whole record: {error}") from None
        except (ValueError, IndexError, struct.error) as error:
            # Nobody knows of a way here; if there is one, it must not stop the owner.
            raise RingNonsense(f"records that cannot be checked: {error!r}") from error

    def _many(self, parts: Parts) -> EncodedBatch:
        from lakelog.ring.columns import checked_columns

        batch = checked_columns(parts, self)
        return self._pieces(parts) if batch is None else batch

    def _pieces(self, parts: Parts) -> EncodedBatch:
        if len(parts.sizes) == 1:
            usual = self._usual(parts)
            if usual is not None:
                return usual
        if sum(parts.sizes) != len(parts.records) or min(parts.sizes) <= 0:
            raise RingNonsense("the lengths of records are not those of their bytes")
        ones, at = [], 0
        for number, size in enumerate(parts.sizes):
            ones.append(self._one(parts, at, int(size), parts.topic_of(number)))
            at += int(size)
        if len(ones) == 1:
            return ones[0]
        if any(type(one) is EncodedLight for one in ones):
            return EncodedPieces(ones)
        return EncodedSeveral(parts.records, ones, parts.wait)

    def _usual(self, parts: Parts) -> EncodedOne | None:
        records, topic, safe_bytes = parts.records, parts.topics[0], self.limits.safe_bytes
        if parts.sizes[0] != len(records):
            return None
        found = usual_one(
            records,
            topic,
            safe_bytes,
            wait=parts.wait,
            sealed=self.sealed,
            verify=self.verify_bodies,
        )
        return None if found is None else self._finished(*found, topic)

    def _one(self, parts: Parts, at: int, size: int, topic: str) -> EncodedOne:
        records = parts.records
        frame = read_frame(records, at, at + size, 0)
        if frame.size != size or frame.topic != topic:
            raise RingNonsense(
                f"a record of {frame.size} bytes of topic {frame.topic!r} is not "
                f"the one of {size} bytes of {topic!r} that was announced"
            )
        if topic_block(topic).magic != frame.magic:
            raise RingNonsense(f"the magic number of topic {topic!r} is {frame.magic:08x}")
        length = frame.properties_length
        self.limits.check(frame.body_length, length, size)
        properties = bytes(records[frame.properties_at : at + size])
        check_properties(properties, sealed=self.sealed)
        self._check_body(records, frame)
        queue_id = PREFIX.unpack_from(records, at)[3]
        if queue_id < 0:
            raise RingNonsense(f"queue {queue_id} cannot be; queues are numbered from 0")
        own = records if size == len(records) else records[at : at + size]
        one = EncodedOne(
            own,  # type: ignore[arg-type]  # patched in place, as a bytearray is
            (topic, queue_id),
            not frame.sys_flag & PREPARED,
            parts.wait,
            _hosts(records, frame),
            self.sealed,
        )
        return self._finished(one, properties, topic)

    def _check_body(self, records: memoryview, frame: Frame) -> None:
        stated = int.from_bytes(records[frame.start + AT_BODY_CRC : frame.start + AT_BODY_CRC + 4])
        if stated > CRC31_MASK:
            raise RingNonsense(f"{stated} is no checksum of a body")
        if self.verify_bodies:
            body = records[frame.body_at : frame.body_at + frame.body_length]
            if crc32(body) & CRC31_MASK != stated:
                raise RingNonsense("a body does not have its checksum")

    def _finished(self, one: EncodedOne, properties: bytes, topic: str) -> EncodedOne:
        """As the encoder does it: with offsets in light queues where it feeds some."""
        if self.max_light_queues is None or DISPATCHED not in properties:
            return one
        if not one.queued or not feeds_light_queues(topic):
            return one
        topics = light_queues(decode_properties(properties).get(INNER_MULTI_DISPATCH, ""))
        if not topics:
            return one
        return EncodedLight(one, len(properties), topics, self.limits, self.max_light_queues)


def _hosts(records: memoryview, frame: Frame) -> HostPair:
    born_at = frame.start + AT_BORN_HOST
    time_at = born_at + host_bytes(bool(frame.sys_flag & BORN_HOST_V6))
    store_at = time_at + 8
    end = store_at + host_bytes(bool(frame.sys_flag & STORE_HOST_V6))
    born, store = bytes(records[born_at:time_at]), bytes(records[store_at:end])
    return host_pair(decode_host(born), decode_host(store))
