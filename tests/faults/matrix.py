"""Which calls fail, how, and with which writers and flush strategies; and n by n."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any, Final

from tests.faults.conftest import Outcome
from tests.support.sampling import chance

FAULTS: Final = (
    ("fdatasync", "EIO"),
    ("fdatasync", "ENOSPC"),
    ("fsync", "EIO"),
    ("pwrite", "EIO"),
    ("pwrite", "ENOSPC"),
    ("pwrite", "SHORT"),
    ("fallocate", "ENOSPC"),
    ("fallocate", "EIO"),
    ("rename", "EIO"),
    ("rename", "ENOSPC"),
    ("unlink", "EIO"),
    ("rmdir", "EIO"),
    ("ftruncate", "EIO"),
    ("ftruncate", "EFBIG"),
    ("mkdir", "ENOSPC"),
    ("open", "EMFILE"),
    ("open", "EACCES"),
    ("open", "ENOSPC"),
    ("pread", "EIO"),
    ("msync", "EIO"),
    ("write", "EIO"),
    ("pthread_create", "EAGAIN"),
    ("mmap", "ENOMEM"),
    ("fstat", "EIO"),
    ("stat", "EIO"),
    ("opendir", "EMFILE"),
    ("fcntl", "ENOLCK"),
)
HARMLESS: Final = ("SHORT",)
"""Errors that a store gets over by itself."""
NO_ROOM: Final = ("ENOSPC", "EFBIG")
UNUSED: Final = ("msync", "write")
"""Calls that no store makes."""
ALL: Final = tuple(
    {"writer": writer, "flush": flush}
    for writer in ("file", "mmap", "staged", "direct")
    for flush in ("none", "inline", "timed", "group-commit")
)
WRITES_ALL: Final = {"writer": "file", "flush": "group-commit", "file": {"map_below_bytes": 0}}
"""Even short records go to the log by ``pwrite``, so that this call can fail there."""

FEW_ENTRIES: Final[Mapping[str, Any]] = {
    "writer": "file",
    "flush": "timed",
    "hash-index": {"slots": 4, "entries": 4},
}
"""Files of the index fill up, and are sealed in a thread."""


def named(settings: Mapping[str, Any]) -> str:
    return "-".join(each if isinstance(each, str) else "otherwise" for each in settings.values())


def covering() -> list[tuple[Mapping[str, Any], tuple[str, str], str]]:
    """Each fault with every writer and every flush strategy, in both workloads.

    A fault meets 4 of the 16 pairs, the next fault 4 other ones: a fourth of the runs, and no call
    is left untried in a writer or in a strategy. Each of the special settings comes where it makes
    calls that are not made otherwise.
    """
    found: list[tuple[Mapping[str, Any], tuple[str, str], str]] = []
    for shift, fault in enumerate(FAULTS):
        pairs: list[Mapping[str, Any]] = [ALL[4 * at + (at + shift) % 4] for at in range(4)]
        found += [(each, fault, workload) for each in pairs for workload in ("all", "house")]
        found += [(FEW_ENTRIES, fault, "house")]
        if fault[0] == "pwrite":
            found += [(WRITES_ALL, fault, "all"), (WRITES_ALL, fault, "house")]
    return found


def named_both(value: object) -> str:
    if isinstance(value, Mapping):
        return named(value)
    return "-".join(value) if isinstance(value, tuple) else str(value)


def every_nth(run: Callable[[int], Outcome]) -> None:
    """Let the first call fail, then the second, until there is none left."""
    next(nth for nth in itertools.count(1) if not run(nth).fired)


def some(calls: int, most: int) -> list[int]:
    """At most ``most`` of the numbers up to ``calls``; others in each run."""
    return sorted(chance().sample(range(1, calls + 1), min(most, calls)))
