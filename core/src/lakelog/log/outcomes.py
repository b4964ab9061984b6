"""Checks the outcomes that strategies return after an append, and builds the error for a fault.

The messages are in the log already. An ordinary error would mislead: a caller that puts again after
an error stores them twice.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeAlias

import attrs

from lakelog.runtime.signals import raised_by_handler
from lakelog_format.status import PutStatus
from lakelog_interfaces.errors import StoreFailed, StrategyFailed
from lakelog_interfaces.strategies import Outcome

ErrorBuilder: TypeAlias = "Callable[[str], StrategyFailed]"
"""Builds the error that names a strategy and the fault."""

_PENDING: Final = ("done", "result", "add_done_callback")


class NoOutcomeError(Exception):
    """Describes an invalid value returned in place of an outcome."""


def checked(given: Outcome) -> Outcome:
    """Return ``given`` if it is an outcome; raise :class:`NoOutcomeError` otherwise."""
    if type(given) is not PutStatus and not _is_pending(type(given)):
        raise NoOutcomeError(f"returned {given!r}, which is no PutStatus and no future of one")
    return given


@lru_cache(maxsize=64)
def _is_pending(kind: type) -> bool:
    return all(callable(getattr(kind, name, None)) for name in _PENDING)


def status_of(given: Outcome) -> PutStatus:
    """Wait for the status.

    Raises the error of the outcome, and :class:`NoOutcomeError` if it has no valid status.
    """
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
class StrategyErrors:
    """Builds the error for a strategy's fault.

    :ivar build: builds the error from its text
    :ivar status: for results of messages that lack only the strategy's guarantee
    :ivar missing: the sentence of the error about that guarantee
    """

    build: ErrorBuilder
    status: PutStatus
    missing: str

    def error(self, error: Exception, end_offset: int) -> Exception:
        """The error for a put whose records end at offset ``end_offset``.

        An error of a failed log passes unchanged, and so does an exception from a signal handler.
        """
        if isinstance(error, StoreFailed) or raised_by_handler(error):
            return error
        own = isinstance(error, NoOutcomeError)
        did = str(error) if own else f"raised {type(error).__name__}: {error}"
        failed = self.build(
            f"{did}; the messages are in the log all the same, before offset {end_offset}: do not "
            f"put them again. {self.missing}"
        )
        failed.status = self.status
        failed.__cause__ = None if own else error
        return failed


def flush_errors(build: ErrorBuilder) -> StrategyErrors:
    """The errors of the flush strategy."""
    missing = "Whether they are durable is not known; Store.flush() makes them so"
    return StrategyErrors(build, PutStatus.FLUSH_DISK_TIMEOUT, missing)


def replicator_errors(build: ErrorBuilder) -> StrategyErrors:
    """The errors of the replicator."""
    missing = "Whether they are copied is not known"
    return StrategyErrors(build, PutStatus.FLUSH_SLAVE_TIMEOUT, missing)
