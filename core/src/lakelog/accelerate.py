"""The seam to compiled code that does what a store does for every message.

Python is the specification, and does everything without it. A compiled call answers as the Python
one would, or returns ``None`` and has done nothing: the caller then goes its plain way. So no error
is written twice, and no file or result depends on whether an accelerator is there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

if TYPE_CHECKING:
    from lakelog.message import Message
    from lakelog.results import PutResult

SEAM: Final = 1
"""Counted up with each change of what is called here; an accelerator of another one is not used."""


@runtime_checkable
class Accelerator(Protocol):
    """What compiled code offers; one object serves a whole process.

    :ivar seam: the :data:`SEAM` that it was built for
    """

    seam: int

    def encoding(self, encoder: Any) -> Callable[[Sequence[Message]], Any] | None:
        """What encodes messages as ``encoder``, an ``Encoder``; ``None`` where it never could.

        What is called gives an ``EncodedBatch``.
        """

    def putting(self, encoder: Any, log: Any) -> Putting | None:
        """What appends one message to ``log``, a ``LogParts``; ``None`` where it never could."""


class Putting(Protocol):
    """Appends one message, and does not wait for what the flush strategy promises.

    Gives its result; ``None`` where nothing was done; or the number of the queue that was chosen,
    where nothing else was done.
    """

    def put(self, message: Message) -> PutResult | int | None:
        """Append ``message``."""

    def bound(
        self, topic: str, tags: str | None, queue_id: int | None
    ) -> Callable[[Any, Any], PutResult | int | None] | None:
        """What appends a message, from its body and keys; ``None`` where it never could."""


_current: Accelerator | None = None


def current() -> Accelerator | None:
    """The accelerator of this process, for functions that belong to no store."""
    return _current


def use(accelerator: Accelerator | None) -> None:
    """Let :func:`current` give it from now on."""
    global _current  # noqa: PLW0603  # one per process: pure functions have no store to ask
    _current = accelerator
