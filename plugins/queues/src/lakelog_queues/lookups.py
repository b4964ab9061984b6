"""Look-ups of messages by compiled code, and the object for stores without it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from lakelog.message import StoredMessage
    from lakelog_queues.finding.results import GetResult


class Lookups(Protocol):
    """Looks up messages of an open store; methods return ``None`` to fall back to Python.

    They may do so for any arguments. All arguments are passed by position.
    """

    def close(self) -> None:
        """Close the file that is kept open between calls; no other is kept from now on."""

    def get(
        self, topic: Any, queue_id: Any, offset: Any, max_messages: Any, tag_filter: Any = None
    ) -> GetResult | None:
        """Like ``QueueGetter.get``, with a ``TagFilter`` or ``None``."""

    def records(
        self,
        topic: Any,
        queue_id: Any,
        offset: Any,
        max_records: Any,
        max_bytes: int,
        verify: bool,
        tag_filter: Any = None,
    ) -> tuple[list[bytes], list[int], int, int, int] | None:
        """The fields of ``QueueGetter.get_records`` behind the status, with valid arguments."""

    def query(
        self, topic: Any, key: Any, since_ms: Any, until_ms: Any, max_messages: Any
    ) -> list[StoredMessage] | None:
        """Like ``KeyQuery.query``."""

    def offset_by_time(
        self, topic: Any, queue_id: Any, timestamp_ms: Any, boundary: Any
    ) -> int | None:
        """Like ``TimeSearch.offset_by_time``."""


class NoLookups:
    """Always falls back to Python."""

    def close(self) -> None:
        """Do nothing: no file is kept."""

    def get(self, _topic: Any, _queue: Any, _offset: Any, _most: Any, _tags: Any = None) -> None:
        """Fall back to Python."""

    def records(self, *_arguments: Any) -> None:
        """Fall back to Python."""

    def query(self, _topic: Any, _key: Any, _since: Any, _until: Any, _max_messages: Any) -> None:
        """Fall back to Python."""

    def offset_by_time(self, _topic: Any, _queue_id: Any, _time: Any, _boundary: Any) -> None:
        """Fall back to Python."""


NO_LOOKUPS: Final = NoLookups()
