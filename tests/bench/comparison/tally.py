"""Counts the results of one store for the record."""

from __future__ import annotations

import statistics
from typing import Any, Final

import attrs

from tests.bench.comparison.running import Found

_REMARKS: Final = 3
_REMARK_LENGTH: Final = 200


@attrs.define
class Tally:
    """The counts over all rounds; after each, a new process read the store.

    :ivar acknowledged: acknowledged messages
    :ivar missing: acknowledged messages that are missing; each is counted once
    :ivar doubled: further copies of messages
    :ivar wrong: messages whose bytes differ from those that were put
    :ivar disordered: messages behind a later one of their queue
    :ivar unanswered: messages that are present and were never acknowledged
    :ivar unopened: rounds after which the store did not open
    :ivar lossy: rounds after which a message was missing
    :ivar oldest_lost_ms: longest time from the acknowledgement of a lost message to the cut
    """

    rounds: int = 0
    acknowledged: int = 0
    missing: int = 0
    doubled: int = 0
    wrong: int = 0
    disordered: int = 0
    unanswered: int = 0
    unopened: int = 0
    lossy: int = 0
    oldest_lost_ms: float = 0
    open_ms: list[float] = attrs.field(factory=list)
    told: list[str] = attrs.field(factory=list)

    def add(self, must: set[int], acknowledged: int, found: Found) -> set[int]:
        """Add a round; return the numbers of its missing messages.

        :param must: the numbers of all messages that must be present
        :param acknowledged: the count of those that this round acknowledged
        """
        numbers = found.numbers()
        there = set(numbers)
        missing = must - there
        self.rounds += 1
        self.acknowledged += acknowledged
        self.missing += len(missing)
        self.lossy += bool(missing)
        self.doubled += len(numbers) - len(there)
        self.wrong += found.wrong
        self.disordered += found.disordered()
        self.unanswered += len(there - must)
        if found.open_ms is None:
            self.unopened += 1
        else:
            self.open_ms.append(found.open_ms)
        self.remark(*found.told)
        return missing

    def remark(self, *told: str) -> None:
        """Keep the first few different texts, shortened."""
        for each in told:
            short = each[:_REMARK_LENGTH]
            if short not in self.told and len(self.told) < _REMARKS:
                self.told.append(short)

    def record(self) -> dict[str, Any]:
        """Return the counts for JSON, with the median and the longest time to open, in ms."""
        found = attrs.asdict(self)
        times = found.pop("open_ms")
        found["oldest_lost_ms"] = round(self.oldest_lost_ms)
        found["open_ms"] = round(statistics.median(times), 1) if times else None
        found["longest_open_ms"] = round(max(times), 1) if times else None
        return found
