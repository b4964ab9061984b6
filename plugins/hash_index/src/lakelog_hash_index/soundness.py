"""Which files of an index can be trusted after a stop."""

from __future__ import annotations

from collections.abc import Sequence

from lakelog_hash_index.examine import examine, outline
from lakelog_hash_index.indexfile import IndexFile


def first_unsound(files: Sequence[IndexFile], vouched_ms: int, *, unclean: bool) -> int:
    """The position of the first file that an owner must build again, with those behind it.

    One whose header or outermost entries do not fit together is, after any stop; after an unclean
    one, so is every file that the checkpoint does not vouch for and that breaks a rule.

    :param vouched_ms: the checkpoint's index timestamp: a file that ends by then is durable
    """
    for at, file in enumerate(files):
        is_last = at == len(files) - 1
        checked = unclean and (is_last or not _is_vouched_for(file, vouched_ms))
        if is_broken(file) if checked else any(outline(file)):
            return at
    return len(files)


def is_broken(file: IndexFile) -> bool:
    """Whether what the header counts is not as it was built; what comes behind does not matter."""
    return any(True for _ in examine(file, growing=True))


def _is_vouched_for(file: IndexFile, vouched_ms: int) -> bool:
    header = file.header()
    return not any(header.problems(file.shape)) and header.end_timestamp_ms <= vouched_ms
