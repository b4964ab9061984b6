"""Lands a store in its tables, pass by pass: read positions, cut a range, write files, commit.

A pass begins by reading the positions of all tables, and by checking that the log still has the
last record of each position. Its range starts at the smallest position; tasks leave out the rows
that a table already has. So each table gets each row exactly once by its own position,
independently of the others. Between passes only the ends of ranges without rows for a table are
kept in memory.

While a pass commits, a thread already writes the files of the next pass. They are used only if the
positions of the tables after the commit equal the start of that pass; otherwise they are removed
and written again. The result is the same as without this read-ahead. A kill leaves files that no
version of a table lists.

A dispatcher that has landed all waits at little cost until a pass may find messages again. The
owner of an open lakelog store notifies waiting readers when messages become durable. For a
store that RocketMQ has open, and after a crash, there is no notification, so a pass runs after each
interval. For a closed store the modification times of its files are checked.

A pin in the store makes retention keep the messages that have not landed yet. It has the smallest
position of the tables, so it is never ahead of them. It also protects the log while no dispatcher
runs. It is not written if the store directory is read-only or was never
used by lakelog, as lakelog then deletes no segment. If the pin cannot be written, a warning is
logged and landing continues: the older pin protects more of the log. A dispatcher that fails before
any row has landed removes a pin that it created: otherwise the pin might protect the log for ever.

Pass follows pass, until nothing is left or a stop is requested. Systemd's watchdog is notified
while landing makes progress: ``WATCHDOG=1`` is sent after each task, each commit and each check for
new messages. A pass of minutes consists of tasks of seconds. So a service manager can treat a
process without notifications for longer as hung.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event
from types import FrameType
from typing import Any, Final

import attrs

import lakelog
from lakelog.errors import SettingsError, raised_by_handler
from lakelog.files.filesystem import FileSystem, RealFileSystem
from lakelog.format.layout import OWN_DIR
from lakelog.maintenance import pins
from lakelog.runtime.threads import soon
from lakelog_daemon.notify import READY, STATUS, STOPPING, WATCHDOG, Notifier
from lakelog_lake import engine_provider
from lakelog_lake.errors import LayoutChanged, TemporaryError, TooManyDeadLetters
from lakelog_lake.landing.committing import CommitLock
from lakelog_lake.landing.targets import CommitResult, PassStore, TableSpec, Targets, targets_for
from lakelog_lake.log.extent import CachedStore, DurableEnd, segment_starts
from lakelog_lake.log.records import LogSpan
from lakelog_lake.sinks.locations import TableLocation, location_of
from lakelog_lake.tables.data_files import discard
from lakelog_lake.tables.position import UNCHECKED, Position
from lakelog_lake.tasks.engines import Engine, ReadAhead, drop
from lakelog_lake.tasks.task import LandingSource, Task, TaskLimits, Written, next_spans

RENEW_MS: Final = 60_000
"""Interval at which an unchanged pin is written again, so that it does not expire."""
_LOOK_SECONDS: Final = 0.3
"""Longest time between two looks at the files of a store, and before a first retry."""
_LAYOUTS: Final = 2
"""Most passes in a row that are repeated for changed columns or partitions."""
_UNFIT: Final = re.compile(r"[^A-Za-z0-9._-]+")
_WORD_LENGTH: Final = 40

_log = logging.getLogger("lakelog_lake")


@attrs.define
class PinWriter:
    """Writes one pin.

    :ivar path: the store directory
    :ivar name: name of the pin
    :ivar destination: description of the tables for users
    :ivar clock: returns the time in ms since 1970
    """

    path: Path
    name: str
    destination: str
    clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    files: FileSystem = attrs.field(
        default=attrs.Factory(lambda self: RealFileSystem.of_store(self.path), takes_self=True)
    )
    _written: pins.Pin | None = None
    _is_new: bool = False

    def renew(self, position: Position) -> None:
        """Set the pin to the end of ``position``, the smallest one of the tables."""
        last = position.last
        if last is not None and last.crc == UNCHECKED:
            last = None
        pin = pins.Pin(self.name, position.end, self.clock(), self.destination, last)
        if self._has_changed(pin) and os.access(self.path / OWN_DIR, os.W_OK | os.X_OK):
            if self._written is None:
                self._is_new = self._there() is None
            try:
                pins.write_pin(self.files, self.path, pin)
            except OSError as error:
                _log.warning("the pin %r cannot be written: %s", self.name, error)
            self._written = pin

    def _has_changed(self, pin: pins.Pin) -> bool:
        before = self._written
        if before is None or attrs.evolve(before, time_ms=pin.time_ms) != pin:
            return True
        return not 0 <= pin.time_ms - before.time_ms < RENEW_MS

    def _there(self) -> pins.Pin | None:
        there = pins.read_pins(self.files, self.path)
        return next((each for each in there if each.name == self.name), None)

    @property
    def may_go(self) -> bool:
        """Whether this object created the pin, and no other process has changed it since."""
        return self._is_new and self._there() == self._written

    def remove(self) -> None:
        """Delete the pin, so that retention no longer waits."""
        try:
            pins.remove_pin(self.files, self.path, self.name)
        except OSError as error:
            _log.warning("the pin %r cannot be removed: %s", self.name, error)


def pin_for(
    path: Path, store: str, place: TableLocation, table: str, given: str | None = None
) -> PinWriter:
    """The pin of a dispatcher that lands the store in ``path``.

    :param store: the identity of the store in the tables
    :param table: the name of the table, or a template
    :param given: the pin's name; ``None`` derives one that is the same in each run

    Raises :class:`~lakelog.errors.SettingsError` for an invalid name.
    """
    to = place.text
    shown = to if place.names_are_paths else f"{to} {table}"
    if given is not None:
        try:
            return PinWriter(path, pins.check_name(given), shown)
        except ValueError as error:
            raise SettingsError(str(error), key="--pin") from None
    digest = hashlib.sha256(repr((to, table, store)).encode()).hexdigest()[:8]
    word = _UNFIT.sub("-", table.rpartition("/")[2]).strip("-")[:_WORD_LENGTH]
    return PinWriter(path, "-".join(filter(None, (to.partition(":")[0], word, digest))), shown)


TICK_SECONDS: Final = 0.5
"""Longest time until a requested stop is noticed."""
LONGEST_SECONDS: Final = 30.0
"""Longest time between passes, which renew pins and check the log and the tables."""


@attrs.frozen
class Landed:
    """The result of a pass.

    :ivar start: start of its range, a physical offset in bytes
    :ivar end: end of its range, exclusive
    :ivar won: false if another dispatcher landed the range in each table that was to be committed
    :ivar rows: rows added to all tables, dead letters included. Rows that another dispatcher landed
        count only if ``won`` is false
    :ivar files: number of the files with these rows
    :ivar damaged: number of damaged ranges of the log, and of bodies, that were skipped
    :ivar dead_letters: number of rows whose bodies do not parse
    :ivar is_more: whether further rows are known: in the log, of a topic whose table is new, or
        because another dispatcher committed first
    :ivar commit_seconds: total time of the commits to all tables
    """

    start: int
    end: int
    rows: int
    files: int
    damaged: int
    won: bool
    dead_letters: int = 0
    is_more: bool = False
    commit_seconds: float = 0.0


@attrs.define
class LandingDispatcher:
    """Lands ``source`` in ``targets``.

    :ivar on_phase: called with ``planned``, ``written`` and ``committed`` at the end of each phase,
        with ``one committed`` after each table, and by a thread with ``written ahead`` for the next
        pass
    :ivar max_dead_letters: most dead letters that this object may land; a pass with more lands
        nothing
    :ivar pin: renewed at the start of each pass, so that retention may delete landed messages
    :ivar is_last: whether no pass follows, so that none is written ahead
    :ivar commit_lock: the commit lock shared with other dispatchers of the same tables
    """

    source: LandingSource
    targets: Targets
    engine: Engine
    bounds: TaskLimits
    on_phase: Callable[[str], None] = lambda _: None
    pin: PinWriter | None = None
    max_dead_letters: int | None = None
    is_last: Callable[[], bool] = lambda: False
    commit_lock: CommitLock | None = None
    _ahead: ReadAhead | None = attrs.field(default=None, init=False)
    _dead_letters: int = attrs.field(default=0, init=False)
    _durable: DurableEnd = attrs.field(factory=DurableEnd)
    _kept: CachedStore = attrs.field(init=False)
    _looked_to: int | None = attrs.field(default=None, init=False)
    """The physical offset up to which the last pass found no messages."""

    def __attrs_post_init__(self) -> None:
        self._kept = CachedStore(self.source.path)

    @classmethod
    def of(
        cls,
        source: LandingSource,
        spec: TableSpec,
        engine: Engine,
        bounds: TaskLimits,
        place: TableLocation | None = None,
        *,
        pin: str | None = None,
        is_pinned: bool = True,
        **others: Any,
    ) -> LandingDispatcher:
        """Make the dispatcher for the tables of ``spec``, which are created if needed.

        :param place: the location of the tables, if it is not that of ``spec``
        :param pin: the name of the pin; ``None`` derives one
        :param others: further attributes

        Raises :class:`~lakelog.errors.SettingsError` and the errors of the tables.
        """
        place = place or location_of(spec.to, spec.storage)
        name = place.table(spec.table)
        writer = pin_for(source.path, source.store, place, name, pin) if is_pinned else None
        return cls(source, targets_for(spec, place), engine, bounds, pin=writer, **others)

    def wait(self, stop: Event, interval_seconds: float, on_tick: Callable[[], None]) -> None:
        """Sleep after a pass that found nothing, until one may find messages, or until ``stop``.

        :param interval_seconds: longest time between checks where no notification comes
        """
        end = time.monotonic() + max(LONGEST_SECONDS, interval_seconds)
        while not stop.is_set() and time.monotonic() < end:
            on_tick()
            has_more = self._await_notification()
            if has_more is None:
                stop.wait(min(interval_seconds, _LOOK_SECONDS))
                has_more = not self._durable.is_still(self.source.path)
            if has_more:
                return

    def _await_notification(self) -> bool | None:
        """Wait one tick for a notification; whether there is more, or ``None`` without an owner."""
        behind, store = self._looked_to, self._kept.kept
        if behind is None or store is None:
            return None
        begun = time.monotonic()
        if store.wait_flushed(behind + 1, round(TICK_SECONDS * 1000)):
            return True
        return False if time.monotonic() - begun >= TICK_SECONDS else None

    def one_pass(self) -> Landed | None:
        """Run one pass; return ``None`` if there is nothing to land.

        Raises :class:`~lakelog_lake.errors.LandingError`, and errors of the engine and tables.
        After any error, rows that were not committed land in a later pass.
        """
        self._looked_to = None
        begun_ns = time.time_ns()
        try:
            landed = self._pass_again()
        except BaseException as error:
            self.close()  # the next pass must not rely on any cached state
            self._notify_observers(begun_ns, error)
            raise
        if landed is not None:
            self._notify_observers(begun_ns, attrs.asdict(landed))
        return landed

    def _pass_again(self) -> Landed | None:
        """Run a pass; repeat it for tables whose columns or partitions changed meanwhile."""
        for _ in range(_LAYOUTS):
            try:
                return self._pass()
            except LayoutChanged as error:
                _log.warning("%s", error)
                self.close()
                for each in self.targets.served:
                    each.forget()
        return self._pass()

    def _notify_observers(self, begun_ns: int, done: Mapping[str, Any] | BaseException) -> None:
        """Call all observers; one that fails is logged, and landing continues."""
        tables = [each.sink.name for each in self.targets.served]
        for each in engine_provider.observers():
            try:
                each(self.source.path, tables, begun_ns, done)
            except Exception as error:  # an observer of a plugin may raise anything
                if raised_by_handler(error):
                    raise
                _log.exception("an observer of landing failed")

    def _pass(self) -> Landed | None:
        store = self._kept.now()
        start = self._looked(store)
        ahead = self._ahead_from(start)
        spans = ahead.spans if ahead else next_spans(store, start, self.bounds, self._durable)
        if not spans:
            self._looked_to = start
            return None
        self.on_phase("planned")
        written = self.engine(self._tasks(spans)) if ahead is None else ahead.written()
        self._ahead = None
        self.on_phase("written")
        self._check_dead_letters(spans, written)
        strays: dict[str, int] = {}
        for each in reversed(written):  # tasks are in the order of the log: the first place counts
            strays |= each.strays
        self.targets.met(strays)
        is_more = spans[-1].end - spans[0].start >= self.bounds.pass_bytes
        if is_more and not strays and not self.is_last():
            self._begin_from(spans[-1].end)
        begun = time.monotonic()
        landed = self._settle(spans, written)
        took = time.monotonic() - begun
        self._dead_letters += landed.dead_letters
        self.on_phase("committed")
        is_more = is_more or bool(strays) or not landed.won
        return attrs.evolve(landed, is_more=is_more, commit_seconds=took)

    def _looked(self, store: lakelog.Store) -> int:
        """Read the positions of all tables; return the start of the next range."""
        source, targets = self.source, self.targets
        asked = PassStore(store, source.store, source.chosen, source.accept_gaps)
        start = targets.look(asked)
        if asked.identity != source.store:
            _log.info("the store %s goes on as %s in the tables", source.store, asked.identity)
            self.source = attrs.evolve(source, store=asked.identity)
        if self.pin is not None:
            self.pin.renew(targets.landed() or Position(start, start))
        return start

    def _ahead_from(self, start: int) -> ReadAhead | None:
        """The pass written ahead if it starts at the tables' positions; otherwise drop it."""
        if self._ahead is not None and not self._ahead.is_of(self.targets.starts(start)):
            self._ahead.drop()
            self._ahead = None
        return self._ahead

    def _begin_from(self, start: int) -> None:
        """Start writing the pass after the present one, from ``start`` on, in a thread."""
        spans = next_spans(self._kept.now(), start, self.bounds, self._durable)
        tasks = self._tasks(spans)

        def write() -> Sequence[Written]:
            written = self.engine(tasks)
            self.on_phase("written ahead")
            return written

        if spans:
            self._ahead = ReadAhead.begun(spans, self.targets.starts(start), write)

    def close(self) -> None:
        """Close the store, and discard the pass written ahead."""
        ahead, self._ahead = self._ahead, None
        with closing(self._kept):
            if ahead is not None:
                ahead.drop()

    def finish(self) -> None:
        """End in an orderly way: commit the positions that are only in memory, and are far on."""
        segments = segment_starts(self._kept.now())
        self.close()
        self.targets.finish(self.source.store, segments)

    def __enter__(self) -> LandingDispatcher:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """As :meth:`finish`; after an error, remove the pin if no row of the store has landed."""
        if kind is None:
            self.finish()
            return
        self.close()
        pin = self.pin
        if pin is not None and pin.may_go and not self.targets.may_hold(self.source.store):
            pin.remove()

    def _tasks(self, spans: Sequence[LogSpan]) -> list[Task]:
        outlets = self.targets.outlets()
        return [Task(self.source, span, outlets, self.bounds.file_bytes) for span in spans]

    def _check_dead_letters(self, spans: Sequence[LogSpan], written: Sequence[Written]) -> None:
        if self.max_dead_letters is None:
            return
        dead = [n for n, target in enumerate(self.targets.served) if target.is_dead_letters]
        rows = sum(part.rows for each in written for n, part in each.parts.items() if n in dead)
        if self._dead_letters + rows > self.max_dead_letters:
            drop(written)
            count = self._dead_letters + rows
            raise TooManyDeadLetters(count, self.max_dead_letters, spans[0].start, spans[-1].end)

    def _settle(self, spans: Sequence[LogSpan], written: Sequence[Written]) -> Landed:
        """Commit to the tables one by one; if one fails, the tables behind it land later."""
        end = spans[-1].end
        last = next((each.last for each in reversed(written) if each.last is not None), None)
        done: list[CommitResult] = []
        for number, target in enumerate(self.targets.served):
            parts = [each.parts[number] for each in written if number in each.parts]
            try:
                settled = target.settle(self.source.store, end, last, parts, self.commit_lock)
            except LayoutChanged:
                later = (part for each in written for n, part in each.parts.items() if n > number)
                discard(file for part in later for file in part.files)
                raise
            if settled is not None:
                done.append(settled)
                self.on_phase("one committed")
        self.targets.read_to(end)
        won = not done or any(each.won for each in done)
        counted = [each for each in done if each.won is won]
        return Landed(
            min((each.start for each in done), default=spans[0].start),
            end,
            sum(each.rows for each in counted),
            sum(each.files for each in counted),
            sum(each.damaged for each in written),
            won,
            sum(each.rows for each in counted if each.dead_letters),
        )


_BEATS: Final = 3
"""Notifications per watchdog interval."""


@attrs.define
class WatchdogNotifier:
    """Notifies the service manager; to be called after each step of progress, from any thread."""

    _manager: Notifier
    _watchdog_sent_s: float = float("-inf")

    @classmethod
    def of_this_process(cls) -> WatchdogNotifier:
        """Make the notifier for the service manager of the environment, if any."""
        return cls(Notifier.of(os.environ))

    def __call__(self, *_: object) -> None:
        """Report progress; sends at most three notifications per watchdog interval."""
        seconds, now = self._manager.watchdog_seconds, time.monotonic()
        if seconds is not None and now - self._watchdog_sent_s >= seconds / _BEATS:
            self._watchdog_sent_s = now
            self._manager.send(WATCHDOG)

    def ready(self) -> None:
        """Report that startup is complete; the watchdog counts from now on."""
        self._manager.send(READY)
        self()

    def send_status(self, what: str) -> None:
        """Send a status line for users."""
        self._manager.send(STATUS + what)

    def stopping(self) -> None:
        """Report that the process is stopping."""
        self._manager.send(STOPPING)

    def sleep(self, stop: Event, seconds: float) -> None:
        """Wait for ``stop`` for at most ``seconds``, and notify the watchdog meanwhile."""
        end = time.monotonic() + seconds
        longest = (self._manager.watchdog_seconds or seconds) / _BEATS
        while not stop.is_set() and (left := end - time.monotonic()) > 0:
            self()
            stop.wait(min(left, max(longest, 0.01)))


_LONGEST_PAUSE_SECONDS: Final = 30.0
_SHARE: Final = 0.2
"""Largest share of the time that commits may take."""
_LOOKED_AT: Final = 8

Pass = Callable[[], Landed | None]


def until_done(one_pass: Pass, stop: Event, on_landed: Callable[[Landed], None]) -> bool:
    """Run passes until one finds no messages, or until ``stop`` is set.

    :returns: ``True`` if no message was left, ``False`` if ``stop`` ended the run before
    """
    while not stop.is_set():
        landed = one_pass()
        if landed is None:
            return True
        on_landed(landed)
    return False


def until_stopped(
    one_pass: Pass,
    on_landed: Callable[[Landed], None],
    on_trouble: Callable[[TemporaryError, float], None],
    waits: LandingWaits,
) -> None:
    """Land messages as they arrive, until the stop of ``waits`` is set.

    Passes begin the interval of ``waits`` apart, so that single messages do not cause one commit
    each. A pass begins at once if further messages are known, or after an idle interval. If commits
    take long, passes begin further apart, see :class:`Spacing`.

    A temporary error does not end the run: ``on_trouble`` is called with the error and with the
    seconds until the next try, which increase each time.
    """
    interval_seconds = waits.interval_seconds
    pause = first_pause = min(interval_seconds, _LOOK_SECONDS)
    spacing = Spacing(interval_seconds)
    while not waits.stop.is_set():
        begun = time.monotonic()
        try:
            landed = one_pass()
        except TemporaryError as error:
            pause = min(2 * pause, max(_LONGEST_PAUSE_SECONDS, interval_seconds))
            on_trouble(error, pause)
            waits.sleep(pause)
            continue
        pause = first_pause
        if landed is None:
            waits.for_more()
            continue
        on_landed(landed)
        if not landed.is_more:
            waits.sleep(begun + spacing.after(landed) - time.monotonic())


@attrs.define
class Spacing:
    """The time between the starts of passes, so that commits take at most a fifth of the time.

    The fastest of the last few commits counts: a machine that is busy for a moment does not slow
    the table down.
    """

    interval_seconds: float
    _took: deque[float] = attrs.field(factory=lambda: deque(maxlen=_LOOKED_AT))
    _logged_seconds: float = attrs.field(
        default=attrs.Factory(lambda self: self.interval_seconds, True)
    )

    def after(self, landed: Landed) -> float:
        """Seconds from the start of the pass that has ``landed`` to the start of the next."""
        self._took.append(landed.commit_seconds)
        most = max(_LONGEST_PAUSE_SECONDS, self.interval_seconds)
        found = min(max(self.interval_seconds, min(self._took) / _SHARE), most)
        if not 1 / 2 < found / self._logged_seconds < 2:
            self._logged_seconds = found
            took = min(self._took)
            _log.warning("passes begin %.1f s apart, because a commit takes %.2f s", found, took)
        return found


@attrs.frozen
class LandingWaits:
    """Waits between passes, and notifies the watchdog meanwhile; a stop ends each wait early."""

    stop: Event
    interval_seconds: float
    lander: LandingDispatcher
    alive: WatchdogNotifier

    def sleep(self, seconds: float) -> None:
        """Sleep for ``seconds``; return at once if that is 0 or less."""
        self.alive.sleep(self.stop, seconds)

    def for_more(self) -> None:
        """Wait until a pass may find new messages."""
        self.lander.wait(self.stop, self.interval_seconds, self.alive)


@contextmanager
def stopped_by_signals() -> Iterator[Event]:
    """Yield an event that SIGTERM and Ctrl-C set, so that the pass under way is finished first.

    A second signal ends the process as usual, without harm to the tables.
    """
    stop = Event()
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}

    def set_stop(number: int, _frame: FrameType | None) -> None:
        soon(stop.set)
        signal.signal(number, before[signal.Signals(number)])

    for each in before:
        signal.signal(each, set_stop)
    try:
        yield stop
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
