"""The built-in append callback: the encoder with the settings of a store."""

from __future__ import annotations

from collections.abc import Sequence

from lakelog_format.codec.encoded import EncodedBatch
from lakelog_format.codec.encoder import Encoder, RoundRobin
from lakelog_format.codec.limits import Limits
from lakelog_format.fields.hosts import encode_host
from lakelog_format.fields.queue_offsets import QueueOffsets
from lakelog_format.message import Message
from lakelog_format.status import AppendStatus
from lakelog_interfaces.accelerate import Accelerator
from lakelog_interfaces.errors import SettingsError
from lakelog_interfaces.settings import StoreSettings


class RocketmqAppendCallback:
    """Encodes with an ``Encoder``; the encoded batch then places itself.

    To wrap it, create one with :meth:`of` and ``context.core``, and pass other messages to
    ``encode``.

    :ivar accelerator: compiled code that encodes the same records, or ``None``
    """

    def __init__(self, encoder: Encoder, accelerator: Accelerator | None = None) -> None:
        self.encoder = encoder
        self.accelerator = accelerator
        self._accelerated = accelerator.encoding(encoder) if accelerator else None

    @classmethod
    def of(
        cls, core: StoreSettings, accelerator: Accelerator | None = None
    ) -> RocketmqAppendCallback:
        """The callback for a store with these settings.

        :param accelerator: ``context.accelerator``

        Raises :class:`~lakelog.errors.SettingsError` if ``core.store_host`` is not a valid host.
        """
        try:
            encode_host(core.store_host)
        except ValueError as error:
            raise SettingsError(str(error), key="store_host") from None
        return cls(
            Encoder(
                Limits.of(core.max_message_size_bytes, core.segment_size_bytes),
                core.store_host,
                core.record_crc,
                core.max_light_queues if core.light_queues else None,
                RoundRobin(core.queues_per_topic),
            ),
            accelerator,
        )

    def encode(self, messages: Sequence[Message]) -> EncodedBatch:
        """Encode one message or many; raises :class:`~lakelog.errors.IllegalMessage`."""
        batch: EncodedBatch | None = self._accelerated(messages) if self._accelerated else None
        return self.encoder.encode(messages) if batch is None else batch

    def place(
        self,
        batch: EncodedBatch,
        position: int,
        remaining: int,
        queue_offsets: QueueOffsets,
        now_ms: int,
    ) -> AppendStatus:
        """Fill in the fields that depend on the record's position in the log."""
        return batch.place(position, remaining, queue_offsets, now_ms)
