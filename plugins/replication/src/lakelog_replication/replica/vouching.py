"""Determines which bytes of a replica the master cannot lose; only these may land in tables.

A master sends bytes before it has synced them. If its machine then loses power, its log is shorter
than its copy, and the master appends other records there.
"""

from __future__ import annotations

import logging
from collections import deque
from threading import Event, Thread
from typing import Final, Protocol

from lakelog.runtime.threads import started
from lakelog_replication.address import Address
from lakelog_replication.remoting import BrokerRefused, RuntimeInfo, runtime_info
from lakelog_replication.settings import SlaveSettings

_LOG: Final = logging.getLogger("lakelog")
_MERGED_S: Final = 0.1
"""Arrivals within this time are merged into one."""
_POLL_S: Final = 0.25


class Voucher(Protocol):
    """Returns the end of the bytes that the master cannot lose; physical offsets in bytes."""

    def connected(self, end: int, now_s: float) -> None:
        """Note a new connection; the master may be another process since.

        :param end: end offset of the replica's log
        :param now_s: seconds of ``time.monotonic``
        """

    def offset(self, end: int, received_s: float) -> int:
        """The end offset of the bytes that the master cannot lose; called often.

        :param end: end offset of the bytes of the replica that are equal to the master's
        :param received_s: time of the last received bytes, in seconds of ``time.monotonic``
        """

    def close(self) -> None:
        """Stop."""


class AgeVoucher:
    """Vouches for bytes that arrived at least ``age_s`` seconds before the last received bytes.

    A new connection starts the time anew: the master may have restarted, and may have written the
    same bytes again without a sync.
    """

    def __init__(self, age_s: float) -> None:
        self._age_s = age_s
        self._came: deque[tuple[float, int]] = deque()  # time of arrival, end offset
        self._end = 0

    def connected(self, end: int, now_s: float) -> None:
        """Start the time of all bytes that are not vouched for anew."""
        self._came.clear()
        if end > self._end:
            self._came.append((now_s, end))

    def offset(self, end: int, received_s: float) -> int:
        """The end of the bytes that arrived early enough."""
        came = self._came
        if end > (came[-1][1] if came else self._end):
            if len(came) > 1 and received_s - came[-2][0] < _MERGED_S:
                came.pop()
            came.append((received_s, end))
        while came and received_s - came[0][0] >= self._age_s:
            self._end = came.popleft()[1]
        return self._end

    def close(self) -> None:
        """Do nothing."""


class FlushedVoucher:
    """Vouches for the bytes that the master reports as synced; a thread asks for them.

    A response counts only if the broker has not restarted since the connection was made: only the
    process that sent the bytes is known to have the same ones.
    """

    def __init__(self, broker: Address) -> None:
        self._broker = broker
        self._boot_ms: int | None = None
        self._flushed = 0
        self._why = ""
        self._over = Event()
        self._thread = started(Thread(target=self._run, name="lakelog-replica-ask", daemon=True))

    def connected(self, end: int, now_s: float) -> None:  # noqa: ARG002  # the Protocol's
        """Forget the responses of the former process."""
        self._boot_ms, self._flushed = None, 0

    def offset(self, end: int, received_s: float) -> int:  # noqa: ARG002  # the Protocol's
        """The synced end of the last response."""
        return min(end, self._flushed)

    def close(self) -> None:
        """Stop asking."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(_POLL_S):
            try:
                self._note(runtime_info(self._broker))
                why = ""
            except BrokerRefused as error:
                why = str(error)
            if why != self._why:
                self._why = why
                _LOG.warning("%s", why or f"{self._broker} answers again")

    def _note(self, info: RuntimeInfo) -> None:
        if self._boot_ms is None:
            self._boot_ms = info.boot_ms
        elif info.boot_ms == self._boot_ms:
            self._flushed = max(info.flushed, self._flushed)


def make_voucher(settings: SlaveSettings) -> Voucher:
    """Build the voucher for ``settings.vouch``; may start a thread.

    Raises :class:`~lakelog.errors.ThreadNotStarted`.
    """
    if settings.vouch == "flushed":
        return FlushedVoucher(Address.parse(settings.broker))
    # With "received", its loss does not matter, or the master cannot lose its page cache.
    return AgeVoucher(0 if settings.vouch == "received" else settings.vouch_age_ms / 1000)
