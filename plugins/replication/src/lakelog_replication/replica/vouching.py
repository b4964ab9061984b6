"""How much of a replica its master cannot lose; only that may land in tables.

A master sends what it has written, before it has synced it. If its machine then loses power, its
log is shorter than its copy, and it appends other records there.
"""

from __future__ import annotations

import logging
from collections import deque
from threading import Event, Thread
from typing import Final, Protocol

from lakelog.runtime.threads import started
from lakelog_replication.address import Address
from lakelog_replication.remoting import BrokerRefused, RuntimeInfo, runtime_info
from lakelog_replication.replica.settings import SlaveSettings

_LOG: Final = logging.getLogger("lakelog")
_MERGED_S: Final = 0.1
"""Arrivals within this time are one."""
_POLL_S: Final = 0.25


class Voucher(Protocol):
    """Says what the master cannot lose."""

    def connected(self, end: int, now_s: float) -> None:
        """Note a new connection, whose master may be another process.

        :param end: of the bytes that are here before it
        :param now_s: by the monotonic clock
        """

    def offset(self, end: int, heard_s: float) -> int:
        """The end of what the master cannot lose; called often.

        :param end: of the bytes that are here, and equal to the master's
        :param heard_s: when the master was heard last, by the monotonic clock
        """

    def close(self) -> None:
        """Stop."""


class ReceivedVoucher:
    """Vouches for everything: the master cannot lose its page cache, or is no authority."""

    def connected(self, end: int, now_s: float) -> None:
        """Do nothing."""

    def offset(self, end: int, heard_s: float) -> int:  # noqa: ARG002  # the Protocol's
        """Everything."""
        return end

    def close(self) -> None:
        """Do nothing."""


class AgeVoucher:
    """Vouches for what the master had a while before it was heard.

    After a new connection the time begins anew: the master may have been away, and may have written
    the same bytes again.
    """

    def __init__(self, age_s: float) -> None:
        self._age_s = age_s
        self._came: deque[tuple[float, int]] = deque()  # when, and the end by then
        self._end = 0

    def connected(self, end: int, now_s: float) -> None:
        """Begin anew."""
        self._came.clear()
        if end > self._end:
            self._came.append((now_s, end))

    def offset(self, end: int, heard_s: float) -> int:
        """What came early enough."""
        came = self._came
        if end > (came[-1][1] if came else self._end):
            if len(came) > 1 and heard_s - came[-2][0] < _MERGED_S:
                came.pop()
            came.append((heard_s, end))
        while came and heard_s - came[0][0] >= self._age_s:
            self._end = came.popleft()[1]
        return self._end

    def close(self) -> None:
        """Do nothing."""


class FlushedVoucher:
    """Vouches for what the master says that it has synced, asked by a thread.

    An answer counts only if the broker has not started again since the connection: the bytes here
    are equal to those of the process that sent them.
    """

    def __init__(self, broker: Address) -> None:
        self._broker = broker
        self._boot_ms: int | None = None
        self._flushed = 0
        self._why = ""
        self._over = Event()
        self._thread = started(Thread(target=self._run, name="lakelog-replica-ask", daemon=True))

    def connected(self, end: int, now_s: float) -> None:  # noqa: ARG002  # the Protocol's
        """Forget which process answered."""
        self._boot_ms, self._flushed = None, 0

    def offset(self, end: int, heard_s: float) -> int:  # noqa: ARG002  # the Protocol's
        """What the last answer says."""
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
    """Build the voucher of the settings; may start a thread."""
    if settings.vouch == "received":
        return ReceivedVoucher()
    if settings.vouch == "flushed":
        return FlushedVoucher(Address.parse(settings.broker))
    return AgeVoucher(settings.vouch_age_ms / 1000)
