"""One entry of a ring, and whoever waits for its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias

from lakelog.errors import LakelogError

if TYPE_CHECKING:
    from lakelog.results import PutResult
    from lakelog.ring.answers import Answer
    from lakelog.ring.offer import Offer
    from lakelog.ring.writing import Intent

Then: TypeAlias = "Callable[[Call], object]"


class Call:
    """Something that is waited for; usually an entry.

    :ivar done: whether it is known what became of it; set behind the rest
    :ivar intents: where owners that are gone were about to put its records
    :ivar then: called once it is done, in whatever thread; must not block
    """

    __slots__ = ("answer", "done", "error", "intents", "offer", "sequence", "sleeper", "then")

    def __init__(self, offer: Offer | None = None, then: Then | None = None) -> None:
        self.offer = offer
        self.then = then
        self.sequence = 0
        self.intents: tuple[Intent, ...] = ()
        self.answer: Answer | None = None
        self.error: LakelogError | None = None
        self.done = False
        self.sleeper: Any = None

    def settle(self, answer: Answer | None, error: LakelogError | None = None) -> None:
        """It is known; wakes who sleeps for it."""
        self.answer, self.error, self.done = answer, error, True
        if self.sleeper is not None:
            self.rouse()
        if self.then is not None:
            self.then(self)

    def results(self) -> Sequence[PutResult]:
        """What a put of it returns or raises."""
        if self.error is not None:
            raise self.error
        assert self.answer is not None  # it is set before `done`
        return self.answer.results()

    # --- who sleeps ---

    def lie_down(self) -> None:
        """Somebody is about to sleep for it."""
        self.sleeper = Lock()
        self.sleeper.acquire()

    def sleep(self) -> None:
        """Sleep until :meth:`rouse`, which may have come before."""
        self.sleeper.acquire()

    def rouse(self) -> None:
        """Wake who sleeps, done or not."""
        if self.sleeper.locked():
            try:
                self.sleeper.release()
            except RuntimeError:
                return  # another thread woke it at the same time


class Question(Call):
    """Something that was asked, and what the owner said.

    :ivar said: as the owner hears it
    """

    __slots__ = ("heard", "number", "said")

    def __init__(self, what: Mapping[str, Any], number: int) -> None:
        super().__init__()
        self.number = number
        self.said = {**what, "id": number}
        self.heard: dict[str, Any] = {}
