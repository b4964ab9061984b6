"""The end of a log that is in order, found from the last record that a queue leads to.

Behind that one stand few records, or none. A scan would read what is behind them, too: all of the
last segment, which was made in its full length.
"""

from __future__ import annotations

from typing import Final

from lakelog.files import RealFileSystem
from lakelog.layout import BLANK, MAGIC_BLANK, segment_name
from lakelog_spark.landmarks import Landmarks, log_folder

_MOST_RECORDS: Final = 2000
_ZEROS: Final = 64 << 10


def followed_end(marks: Landmarks, *, is_open: bool) -> int | None:
    """Behind the last whole record; ``None`` where that is not sure, or too far from any unit.

    :param is_open: whether somebody writes the log: what is no record is then not finished yet
    """
    at = marks.last()
    for _ in range(_MOST_RECORDS if at is not None else 0):
        assert at is not None  # for the type checker
        message = marks.message(at)
        if message is not None:
            at += message.size
            continue
        behind = _behind_blank(marks, at)
        if behind is None:
            return at if is_open or _is_end(marks, at) else None
        if behind not in marks.starts:
            return behind
        if _is_end(marks, behind):
            return behind
        at = behind
    return None


def _behind_blank(marks: Landmarks, at: int) -> int | None:
    """Where the next segment starts, if a blank fills the rest of this one."""
    head = _read(marks, at, BLANK.size)
    if len(head) < BLANK.size or BLANK.unpack(head)[1] != MAGIC_BLANK:
        return None
    return at + int(BLANK.unpack(head)[0])


def _is_end(marks: Landmarks, at: int) -> bool:
    """Whether nothing but zeros stands there, and behind it, as far as one looks."""
    return not any(_read(marks, at, _ZEROS))


def _read(marks: Landmarks, at: int, length: int) -> bytes:
    start = marks.segment_of(at)
    path = log_folder(marks.store) / segment_name(start)
    try:
        file = RealFileSystem().open(path)
    except FileNotFoundError:
        return b""
    try:
        return file.read_at(at - start, length)
    finally:
        file.close()
