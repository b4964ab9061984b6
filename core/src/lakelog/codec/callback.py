"""RocketMQ's record layout, as an append callback: the built-in one, for others to wrap, too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakelog.codec.encoded import EncodedBatch
from lakelog.codec.encoder import Encoder
from lakelog.codec.limits import Limits
from lakelog.codec.queuechoice import RoundRobin
from lakelog.errors import SettingsError
from lakelog.format.hosts import encode_host
from lakelog.format.queue_offsets import QueueOffsets
from lakelog.message import Message
from lakelog.status import AppendStatus

if TYPE_CHECKING:
    from lakelog.accelerate import Accelerator
    from lakelog.settings.model import StoreSettings


class RocketmqAppendCallback:
    """Encodes with :class:`~lakelog.codec.encoder.Encoder`; a batch places itself.

    To wrap it, make it by :meth:`of` with ``context.core``, and hand ``encode`` other messages.

    :ivar accelerator: compiled code that does the same, if there is any
    """

    def __init__(self, encoder: Encoder, accelerator: Accelerator | None = None) -> None:
        self.encoder = encoder
        self.accelerator = accelerator
        self._accelerated = accelerator.encoding(encoder) if accelerator else None
        if self._accelerated is None:
            self.encode = encoder.encode  # type: ignore[method-assign]  # saves a call per message

    @classmethod
    def of(
        cls, core: StoreSettings, accelerator: Accelerator | None = None
    ) -> RocketmqAppendCallback:
        """The callback for a store with these settings.

        :param accelerator: ``context.accelerator``

        Raises :class:`~lakelog.errors.SettingsError` for a store host that is none.
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
        """Encode one message or many."""
        batch: EncodedBatch | None = self._accelerated(messages) if self._accelerated else None
        if batch is not None:
            return batch
        return self.encoder.encode(messages)

    def place(
        self,
        batch: EncodedBatch,
        position: int,
        remaining: int,
        queue_offsets: QueueOffsets,
        now_ms: int,
    ) -> AppendStatus:
        """Fill in what depends on the place."""
        return batch.place(position, remaining, queue_offsets, now_ms)
