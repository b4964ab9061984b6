"""Follows an owner's log by its page and its files, and dispatches what can be read there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from threading import Event
from typing import Final

from lakelog.dispatch.run import Dispatching
from lakelog.errors import DispatchStopped, OffsetOutOfRange
from lakelog.files.pages.wake_page import LONGEST_SLEEP_S, Sleeper
from lakelog.log.reading.pieces import Piece
from lakelog.services.ownerspage import OwnersPage

GATHER_SECONDS: Final = 0.005
"""How long records may gather behind a round that found few bytes."""
FEW_BYTES: Final = 1 << 20
_POLL_SECONDS: Final = 0.01


class DispatchLoop:
    """What runs in the main thread of the process.

    :ivar turned: when it last got on, by the monotonic clock
    """

    def __init__(
        self,
        page: OwnersPage,
        pieces: Callable[[int, int], Iterator[Piece]],
        dispatching: Dispatching,
        sleeper: Sleeper,
        wake: Callable[[], None],
    ) -> None:
        """Keep what is needed.

        :param wake: wakes those in other processes who wait for what is dispatched
        """
        self.turned = time.monotonic()
        self._page = page
        self._pieces = pieces
        self._dispatching = dispatching
        self._sleeper = sleeper
        self._wake = wake
        self._stop = Event()
        self._finish = False
        self._told = -1
        self._known = page.dispatched

    def stop(self, *, finish: bool) -> None:
        """Stop soon; with ``finish``, once everything that can be read by then is dispatched."""
        self._finish = finish
        self._stop.set()
        self._sleeper.rouse()

    def catch_up(self) -> None:
        """Dispatch up to where the log ends now; the word is right from then on."""
        self._round(self._end())
        if not self._stop.is_set():
            self._known = 0

    def run(self) -> None:
        """Until it is stopped; raises :class:`~lakelog.errors.DispatchStopped`."""
        while not self._stop.is_set():
            self._follow()
        if self._finish:
            self._round(self._end())

    def _follow(self) -> None:
        end = self._end()
        begun = self._dispatching.offset
        self._round(end)
        if self._dispatching.offset == begun:
            self._rest(end)
        elif self._dispatching.offset - begun < FEW_BYTES:
            self._stop.wait(GATHER_SECONDS)

    def _rest(self, end: int) -> None:
        """Until the log has grown, or it is time to look."""
        self._settle()
        asked = self._sleeper.ask()
        if self._end() != end or self._stop.is_set():
            return
        if asked is None or not self._sleeper.sleep(asked, LONGEST_SLEEP_S):
            self._stop.wait(_POLL_SECONDS)

    def _end(self) -> int:
        """Up to where there is something to dispatch; a damaged page says nothing."""
        self.turned = time.monotonic()
        return self._page.end() if self._page.is_whole else self._dispatching.offset

    def _round(self, end: int) -> None:
        dispatching = self._dispatching
        try:
            if end > dispatching.offset:
                self._dispatch(end)
        except DispatchStopped:
            raise
        except OffsetOutOfRange as error:
            if self._page.minimum() <= dispatching.offset:
                raise dispatching.stop("the log's reader", error) from error
            dispatching.offset = self._page.minimum()  # deleted meanwhile
        except Exception as error:
            raise dispatching.stop("the log's reader", error) from error
        finally:
            self._publish()

    def _dispatch(self, end: int) -> None:
        for piece in self._pieces(self._dispatching.offset, end):
            self._dispatching.run((piece,))
            self._publish()
            self.turned = time.monotonic()
            if self._stop.is_set() and not self._finish:
                return

    def _publish(self) -> None:
        """While what another process did before us comes again, the word stays as it was."""
        if self._dispatching.offset >= self._known:
            offset = self._page.dispatched = self._dispatching.offset
            if offset != self._told:
                self._told = offset
                self._wake()
        self._page.count_records(self._dispatching.take_count())

    def _settle(self) -> None:
        """Put a damaged word right."""
        if self._page.is_whole and self._page.dispatched != self._dispatching.offset:
            self._page.dispatched = self._dispatching.offset
