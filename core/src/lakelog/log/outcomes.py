"""What strategies answer behind an append: waited for; and the error where it is no answer.

The messages are in the log by then, so that a bare error would be misleading: who puts again at an
error stores them twice.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeAlias

import attrs

from lakelog.errors import StoreFailed, StrategyFailed
from lakelog.interfaces import Outcome
from lakelog.runtime.signals import raised_by_handler
from lakelog.status import PutStatus

Blame: TypeAlias = "Callable[[str], StrategyFailed]"
"""Makes the error that names a strategy and says what it did."""

_PENDING: Final = ("done", "result", "add_done_callback")


class NoOutcomeError(Exception):
    """Says what a strategy gave in place of an outcome."""


def checked(given: Outcome) -> Outcome:
    """``given``, if it is an outcome."""
    if type(given) is not PutStatus and not _is_pending(type(given)):
        raise NoOutcomeError(f"returned {given!r}, which is no PutStatus and no future of one")
    return given


@lru_cache(maxsize=64)
def _is_pending(kind: type) -> bool:
    return all(callable(getattr(kind, name, None)) for name in _PENDING)


def known(given: Outcome) -> PutStatus:
    """The status, waited for; raises what it came to."""
    if type(given) is PutStatus:
        status = given
    else:
        status = checked(given).result()  # type: ignore[union-attr]  # a PutStatus was seen above
        if type(status) is not PutStatus:
            raise NoOutcomeError(f"came to {status!r}, which is no PutStatus")
    if not status.in_log:
        raise NoOutcomeError(f"answered {status.name}, which is for messages not in the log")
    return status


@attrs.frozen
class Blaming:
    """Whose fault it is.

    :ivar status: for the results of messages of which only the strategy's promise is missing
    """

    blame: Blame
    status: PutStatus
    missing: str

    def error(self, error: Exception, end_offset: int) -> Exception:
        """The error for a put whose records end at ``end_offset`` of the log.

        A log that failed says so itself, and an exception of a signal's handler is its owner's.
        """
        if isinstance(error, StoreFailed) or raised_by_handler(error):
            return error
        own = isinstance(error, NoOutcomeError)
        did = str(error) if own else f"raised {type(error).__name__}: {error}"
        failed = self.blame(
            f"{did}; the messages are in the log all the same, before offset {end_offset}: do not "
            f"put them again. {self.missing}"
        )
        failed.status = self.status
        failed.__cause__ = None if own else error
        return failed


def blaming_flush(blame: Blame) -> Blaming:
    """For the flush strategy."""
    missing = "Whether they are durable is not known; Store.flush() makes them so"
    return Blaming(blame, PutStatus.FLUSH_DISK_TIMEOUT, missing)


def blaming_replicator(blame: Blame) -> Blaming:
    """For the replicator."""
    missing = "Whether they are copied is not known"
    return Blaming(blame, PutStatus.FLUSH_SLAVE_TIMEOUT, missing)
