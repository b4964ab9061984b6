"""Puts messages of one topic without ``Message`` objects: the fastest way for single messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lakelog.store.roles.parts import Puts
from lakelog_format.arguments import whole
from lakelog_format.codec.record_parts import topic_block
from lakelog_format.fields.properties import check_tags
from lakelog_format.message import Body, MessageColumns
from lakelog_format.results import PutResult


class Producer:
    """Puts messages of one topic into one store; made by :meth:`lakelog.Store.producer`.

    Thread-safe; usable as long as the store is open.

    :ivar topic: the topic of all its messages
    :ivar tags: the tags of all its messages; ``None`` without tags
    :ivar queue: the queue id of all its messages; ``None`` lets the store choose one per message
    """

    def __init__(self, topic: str, tags: str | None, queue: int | None) -> None:
        """Check the topic, the tags and the queue.

        Raises :class:`~lakelog.errors.IllegalMessage`, ``ValueError`` or ``TypeError`` for values
        that no message can have.
        """
        topic_block(topic)
        self.topic = topic
        self.tags = None if tags is None else check_tags(tags)
        self.queue = None if queue is None else whole("queue", queue)

    def bind(self, puts: Puts) -> None:
        """Put through ``puts`` from now on; called by the store."""
        self._puts = puts
        self.put = puts.bound(self.topic, self.tags, self.queue)  # type: ignore[method-assign,assignment]  # saves a call per message

    def put(self, body: Body, keys: str | Sequence[str] | None = None) -> PutResult:
        """Append one message, as :meth:`lakelog.Store.put`.

        :param keys: one key, or several
        """
        return self._puts.bound(self.topic, self.tags, self.queue)(body, keys)

    def put_many(
        self, bodies: Any, keys: str | Sequence[str | Sequence[str] | None] | None = None
    ) -> Sequence[PutResult]:
        """Append many messages contiguously, as :meth:`lakelog.Store.put_columns`.

        :param bodies: a list of ``bytes``, or an Arrow array of binary values or strings
        :param keys: one value for all bodies, or a list with one entry per body
        """
        from lakelog_format.codec.body_column import body_column  # brings NumPy

        columns = MessageColumns(self.topic, body_column(bodies), self.queue, self.tags, keys)
        return self._puts.put_batch(columns)

    def __repr__(self) -> str:
        return f"<lakelog.Producer of {self.topic!r}>"
