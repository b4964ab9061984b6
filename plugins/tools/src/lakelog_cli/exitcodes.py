"""The program's exit codes, and their assignment to errors."""

from __future__ import annotations

from typing import Final

from lakelog import errors

OK: Final = 0
FOUND: Final = 1
USAGE: Final = 2
NOT_OPENED: Final = 3
REFUSED: Final = 4
NO_OUTPUT: Final = 5
LATE: Final = 6
INTERRUPTED: Final = 130

HELP: Final = (
    "Exit codes: 0 success; 1 a finding: damage, loss, a failed check, no match, only dead "
    "letters; 2 wrong usage, settings or plugins, or no such topic, queue or "
    "group; 3 the store could not be opened; 4 a put, or a commit to a table, was refused or "
    "failed; 5 the output could not be written; 6 serve did not stop in time; 130 interrupted."
)

_BY_ERROR: Final[tuple[tuple[type[errors.LakelogError], int], ...]] = (
    (errors.PutRefused, REFUSED),
    (errors.IllegalMessage, REFUSED),
    (errors.StoreFailed, REFUSED),
    (errors.StoreError, NOT_OPENED),
    (errors.CorruptRecord, FOUND),
)
"""The first matching class counts; any other error of lakelog's own means wrong usage."""


def of(error: Exception) -> int:
    """The exit code for an error; a plugin's error class may set ``exit_code``."""
    stated = getattr(error, "exit_code", None)
    if isinstance(stated, int):
        return stated
    return next((code for kind, code in _BY_ERROR if isinstance(error, kind)), USAGE)
