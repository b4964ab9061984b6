"""Determines which files of an index are valid after a stop."""

from __future__ import annotations

from collections.abc import Sequence

from lakelog_hash_index.examine import examine, outline
from lakelog_hash_index.indexfile import IndexFile


def first_unsound(files: Sequence[IndexFile], vouched_ms: int, *, unclean: bool) -> int:
    """The index of the first file that an owner must build again, with all later ones.

    After any stop, that is a file whose header and outermost entries are inconsistent; after an
    unclean one, also a file with any error that the checkpoint does not cover.

    :param vouched_ms: the checkpoint's index timestamp: a file that ends by then is durable
    """
    for at, file in enumerate(files):
        is_last = at == len(files) - 1
        checked = unclean and (is_last or not _is_vouched_for(file, vouched_ms))
        if is_broken(file) if checked else any(outline(file)):
            return at
    return len(files)


def is_broken(file: IndexFile) -> bool:
    """Whether the entries that the header counts are inconsistent; later bytes do not matter."""
    return any(True for _ in examine(file, growing=True))


def _is_vouched_for(file: IndexFile, vouched_ms: int) -> bool:
    header = file.header()
    return not any(header.problems(file.shape)) and header.end_timestamp_ms <= vouched_ms
