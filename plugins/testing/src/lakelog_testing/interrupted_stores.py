"""A store whose operation is interrupted at each of its points, and what must hold after it.

:func:`check_interrupted` opens a store in a child process, interrupts the operation, and then does
the same again without an exception, closes the store and opens it again. It reports what is not as
it must be: a lock that is held, a message that is missing, a call that fails or does not end.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import os
import signal
import sys
import tempfile
import threading
import traceback
import warnings
from _thread import RLock
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs

from lakelog import Message, Store
from lakelog.errors import LakelogError
from lakelog_testing.interrupting import PACKAGES, Interrupted, Place, interrupted, points
from lakelog_testing.threads import PATIENCE_SECONDS, poll

TOPIC: Final = "t"
OPENED: Final = "open"
END: Final = "end"
_STORES: Final = 20
"""Cases that one folder serves: its log grows, and each case scans it."""
_PR_SET_PDEATHSIG: Final = 1
_FIELDS: Final = "place", "was_raised", "wrong"

Opener: TypeAlias = Callable[[Path], Store]


@attrs.define
class Trial:
    """A store of its own, for an operation that is to be interrupted.

    :ivar path: folder of the store
    :ivar opener: opens it
    :ivar tried: bodies of messages that the present operation was given, a list for each batch
    :ivar doubtful: those of operations that were interrupted
    :ivar known: bodies of messages that were acknowledged
    """

    path: Path
    opener: Opener
    opened: Store | None = None
    tried: list[list[bytes]] = attrs.field(factory=list)
    doubtful: list[list[bytes]] = attrs.field(factory=list)
    known: list[bytes] = attrs.field(factory=list)
    number: int = 0

    @property
    def store(self) -> Store:
        """The open store."""
        return self.open()

    def open(self) -> Store:
        """Open the store, unless it is open."""
        if self.opened is None:
            self.opened = self.opener(self.path)
        return self.opened

    def close(self) -> None:
        """Close the store; again, if that was interrupted."""
        if self.opened is not None:
            self.opened.close()
            self.opened = None

    def messages(self, count: int, body_bytes: int = 16) -> list[Message]:
        """Messages that nothing else puts; acknowledged, once the operation has returned."""
        self.number += 1
        bodies = [
            b"%d-%d-%d " % (os.getpid(), self.number, each) + b"." * (body_bytes - 16)
            for each in range(count)
        ]
        self.tried.append(bodies)
        return [Message(TOPIC, each, queue_id=0, keys=each.decode().split()[0]) for each in bodies]

    def returned(self) -> None:
        """All that was tried is acknowledged."""
        self.known += [each for group in self.tried for each in group]
        self.tried.clear()

    def was_interrupted(self) -> None:
        """All or nothing of it may be in the store."""
        self.doubtful += self.tried
        self.tried.clear()


Operation: TypeAlias = Callable[[Trial], Callable[[], object]]
"""Prepares a trial, and returns the work that is to be interrupted: once the one way, and again.

What the work puts, it has of :meth:`Trial.messages`; it returns once they are acknowledged.
"""


@attrs.frozen
class Interruptions:
    """What was tried.

    :ivar places: where handlers ran
    :ivar cases: number of calls that were interrupted
    :ivar swallowed: of these, the calls that returned, as if there had been no exception
    :ivar violations: what was wrong, with its place
    """

    points: int
    places: frozenset[Place]
    cases: int
    swallowed: int
    violations: Sequence[str]

    def __str__(self) -> str:
        return (
            f"{self.points} points, {len(self.places)} places, {self.cases} interruptions "
            f"({self.swallowed} returned), {len(self.violations)} violations"
        )


Choose: TypeAlias = Callable[[Sequence[int]], Sequence[int]]


def check_interrupted(  # all but three are optional, and given by name
    opener: Opener,
    operation: Operation,
    folder: Path,
    *,
    choose: Choose = list,
    beside: Opener | None = None,
    beside_first: bool = False,
    packages: Sequence[str] = PACKAGES,
    patience_seconds: float = PATIENCE_SECONDS,
) -> Interruptions:
    """Interrupt ``operation`` at its points, one at a time, in processes that are forked from here.

    :param opener: opens the store at a path
    :param folder: an empty folder, for stores
    :param choose: takes a sample of the numbers of points; they are of the first and of the last
        time that a place is reached
    :param beside: opens the store in another process meanwhile, in which a put must go on
    :param beside_first: whether that process opens it before the one that is interrupted
    :param packages: see :func:`~lakelog_testing.interrupting.points`
    :param patience_seconds: a case that takes longer hangs

    Call it in the main thread, without an open store.
    """
    settings = _Settings(opener, beside, beside_first, packages, patience_seconds)
    counted = list(_in_child(lambda tell: _count(settings, operation, folder / "points", tell)))
    if not counted or isinstance(counted[0], str):
        raise AssertionError(f"the operation fails without an interruption: {counted}")
    left = list(choose(counted[0]["chosen"]))
    places, violations, cases, swallowed, rounds = set[Place](), list[str](), 0, 0, 0
    while left:
        rounds += 1
        path = folder / f"{rounds:04d}"
        for found in _in_child(partial(_try, settings, operation, tuple(left), path)):
            if isinstance(found, str):  # the child has ended before its time
                violations.append(f"point {left[0]}: {found}")
                del left[0]
                break
            at, place, was_raised, wrong = (found[each] for each in ("at", *_FIELDS))
            left = [each for each in left if each > at]
            if place is None:
                continue
            cases += 1
            swallowed += not was_raised
            places.add(place)
            if wrong:
                violations.append(f"point {at}: {place}: {wrong}")
    return Interruptions(counted[0]["points"], frozenset(places), cases, swallowed, violations)


@attrs.frozen
class _Settings:
    opener: Opener
    beside: Opener | None
    beside_first: bool
    packages: Sequence[str]
    patience_seconds: float

    def watch(self) -> None:
        """End this process, with the stacks of its threads, if the next step takes too long."""
        faulthandler.dump_traceback_later(self.patience_seconds * 2, exit=True, file=2)


Tell: TypeAlias = Callable[[Any], None]


def _in_child(work: Callable[[Tell], object]) -> Iterator[Any]:
    """Yield what a forked child tells, and a text if it does not end by itself."""
    faulthandler.cancel_dump_traceback_later()  # a child could not cancel it: it has not its thread
    ours, theirs = Pipe(duplex=False)
    with tempfile.TemporaryFile("w+") as errors:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if not child:
            code = 1
            try:
                os.setsid()
                ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
                ours.close()
                sys.stderr.flush()
                os.dup2(errors.fileno(), 2)
                work(theirs.send)
                code = 0
            except BaseException:  # noqa: BLE001  # the parent must not go on in here
                traceback.print_exc(file=errors)
                errors.flush()
            finally:
                os._exit(code)
        theirs.close()
        try:
            with suppress(EOFError):
                while True:
                    yield ours.recv()
        finally:
            ours.close()
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child, signal.SIGKILL)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status:
            errors.seek(0)
            yield f"the process ended with {status}: {errors.read()[-4000:]}"


def _count(settings: _Settings, operation: Operation, path: Path, tell: Tell) -> None:
    settings.watch()
    found = list[Place]()
    with _stores(settings, path) as (trial, _other):
        for _ in range(2):  # the first one imports modules
            work = operation(trial)
            found = points(work, settings.packages)
            trial.returned()
        first = {place: at for at, place in reversed(list(enumerate(found)))}
        last = {place: at for at, place in enumerate(found)}
        tell({"points": len(found), "chosen": sorted({*first.values(), *last.values()})})


def _try(
    settings: _Settings, operation: Operation, numbers: Sequence[int], path: Path, tell: Tell
) -> None:
    """Try these points, up to the first with a violation: it may have left locks behind."""
    sys.unraisablehook = lambda _: None
    locks = _Locks()
    for begin in range(0, len(numbers), _STORES):
        settings.watch()
        with _stores(settings, path / str(begin)) as (trial, other):
            operation(trial)()  # what is imported has other points
            trial.returned()
            for at in numbers[begin : begin + _STORES]:
                settings.watch()
                result = _Case(settings, operation, trial, other, locks).run(at)
                tell({"at": at, **result})
                if result["wrong"]:
                    os._exit(0)


@attrs.frozen
class _Case:
    settings: _Settings
    operation: Operation
    trial: Trial
    other: _Other | None
    locks: _Locks

    def run(self, at: int) -> dict[str, Any]:
        """Interrupt the operation once; returns what came of it."""
        trial, step = self.trial, "before it"
        result: dict[str, Any] = dict(zip(_FIELDS, (None, False, None), strict=True))
        try:
            work, is_open = self.operation(trial), trial.opened is not None
            owned, byte_locks = self.locks.owned(), _byte_locks(trial.path)
            step = "what was raised"
            came = interrupted(work, at, self.settings.packages)
            result.update(place=came.place, was_raised=came.was_raised)
            (trial.was_interrupted if came.was_raised else trial.returned)()
            step = "locks"
            self._check_locks(owned, byte_locks if is_open and self.other is None else None)
            step = "the same again"
            self.operation(trial)()
            trial.returned()
            step = "another process puts"
            if self.other is not None:
                trial.known.append(self.other.put())
            step = "what is in the store"
            self._check_content()
            step = "close"
            trial.close()
            assert not _byte_locks(trial.path), _byte_locks(trial.path)
            gc.collect()  # what the exception's traceback had
            left = _open_files(trial.path)
            assert not left, f"open after the close: {left}"
            assert poll(lambda: not _threads(), 1), f"threads after the close: {_threads()}"
            step = "open again"
            trial.open()
            step = "what is in the store opened again"
            self._check_content()
        except Interrupted:
            raise
        except BaseException as error:  # noqa: BLE001  # each is what is reported
            where = traceback.extract_tb(error.__traceback__)[-1]
            cause = f", of {error.__cause__!r}" if error.__cause__ else ""
            file = where.filename.rpartition("/src/")[2]
            result["wrong"] = f"{step}: {error!r}{cause} at {file}:{where.lineno}"
        return result

    def _check_locks(self, owned: dict[int, str], byte_locks: set[str] | None) -> None:
        left = [what for each, what in self.locks.owned().items() if each not in owned]
        assert not left, f"still owned: {left}"
        if byte_locks is not None:  # other threads use them for a moment
            is_as_before = poll(lambda: _byte_locks(self.trial.path) <= byte_locks)
            assert is_as_before, f"still held: {_byte_locks(self.trial.path) - byte_locks}"

    def _check_content(self) -> None:
        store, trial = self.trial.store, self.trial
        assert store.wait_dispatched(store.max_offset), "not dispatched"
        found = [bytes(each.body) for each in store.scan()]
        assert len(found) == len(set(found)), "a message is there twice"
        missing = set(trial.known) - set(found)
        assert not missing, f"acknowledged and missing: {sorted(missing)}"
        for group in trial.doubtful:
            there = [each in found for each in group]
            assert all(there) or not any(there), f"a part of a batch: {there}"
        queued = list[bytes]()
        while batch := store.get(TOPIC, 0, len(queued)).messages:
            queued += (bytes(each.body) for each in batch)
        only = sorted({*queued} ^ {*found})
        assert queued == found, (
            f"queue: {len(queued)} messages, log: {len(found)}; not both: {only}"
        )
        trial.known, trial.doubtful = found, []


@contextmanager
def _stores(settings: _Settings, path: Path) -> Iterator[tuple[Trial, _Other | None]]:
    """Open a store, and have it open in another process, too."""
    path.mkdir(parents=True)
    trial = Trial(path / "store", settings.opener)
    if settings.beside is None:
        trial.open()
        yield trial, None
        trial.close()
        return
    with _Other.begun(settings.beside, trial.path, settings.patience_seconds) as other:
        for opens in (other.open, trial.open)[:: 1 if settings.beside_first else -1]:
            opens()
        other.put()
        yield trial, other
        trial.close()


@attrs.frozen
class _Other:
    """Another process, which has the store open."""

    pipe: Connection
    patience_seconds: float

    @classmethod
    @contextmanager
    def begun(cls, opener: Opener, path: Path, patience_seconds: float) -> Iterator[_Other]:
        ours, theirs = Pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if not child:
            try:
                ours.close()
                _serve(Trial(path, opener), theirs)
            except EOFError:  # the one that is interrupted has ended
                os._exit(0)
            finally:
                traceback.print_exc()
                os._exit(1)
        theirs.close()
        try:
            yield cls(ours, patience_seconds)
        finally:
            ours.close()
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)

    def open(self) -> None:
        self._ask(OPENED)

    def put(self) -> bytes:
        """Put a message; returns its body."""
        body: bytes = self._ask("put")
        return body

    def _ask(self, what: str) -> Any:
        self.pipe.send(what)
        assert self.pipe.poll(self.patience_seconds), f"another process cannot {what}"
        answer = self.pipe.recv()
        assert not isinstance(answer, str), f"another process cannot {what}: {answer}"
        return answer


def _serve(trial: Trial, pipe: Connection) -> None:
    while True:
        what = pipe.recv()
        try:
            store = trial.open()
            if what == OPENED:
                pipe.send(None)
                continue
            [message] = trial.messages(1)
            store.put(message)
            pipe.send(message.body)
        except LakelogError as error:
            pipe.send(repr(error))


def _byte_locks(path: Path) -> set[str]:
    """Locks that this process holds on files of a store."""
    found = set[str]()
    for number, name in _open_files(path).items():
        with suppress(OSError):
            for line in Path(f"/proc/self/fdinfo/{number}").read_text().splitlines():
                if line.startswith("lock:"):
                    words = line.split()
                    found.add(" ".join([name, words[2], words[4], *words[-2:]]))
    return found


def _open_files(path: Path) -> dict[str, str]:
    """Files of a store that this process has open, by the number of the descriptor."""
    found = {}
    for each in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            name = os.readlink(f"/proc/self/fd/{each}")
            if name.startswith(f"{path}{os.sep}"):
                found[each] = name.removeprefix(f"{path}{os.sep}")
    return found


def _threads() -> list[str]:
    """Names of the threads of lakelog that run."""
    return [each.name for each in threading.enumerate() if each.name.startswith("lakelog-")]


class _Locks:
    """Reentrant locks of this process, of which the main thread owns none between two calls."""

    def __init__(self) -> None:
        gc.unfreeze()
        self.early = [each for each in gc.get_objects() if issubclass(type(each), RLock)]
        gc.freeze()  # each look goes through what is made later only

    def owned(self) -> dict[int, str]:
        """Those that the main thread owns, by their identity.

        ``isinstance`` would ask the object, which may be a proxy of one that is gone.
        """
        found = dict[int, str]()
        for each in [*self.early, *gc.get_objects()]:
            if issubclass(type(each), RLock) and each._is_owned():
                owners = {type(one).__name__ for one in gc.get_referrers(each)} - {"list"}
                found[id(each)] = f"{each!r} of {sorted(owners)}"
        return found
