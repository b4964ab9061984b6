"""The errors of messages and records; ``LakelogError`` is the base class of all lakelog errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from lakelog_format.status import PutStatus

if TYPE_CHECKING:
    from lakelog_format.results import PutResult


class LakelogError(Exception):
    """The base class of all lakelog errors; instances can be pickled."""

    def __reduce__(self) -> tuple[Callable[..., LakelogError], tuple[Any, ...]]:
        """Pickle the message and the attributes; constructor arguments differ by class."""
        return _again, (type(self), self.args, self.__dict__)


def _again(kind: type[LakelogError], words: tuple[Any, ...], parts: dict[str, Any]) -> LakelogError:
    """Rebuild a pickled error with the message that it had when it was raised."""
    error = kind.__new__(kind, *words)
    error.__dict__.update(parts)
    return error


class CorruptRecord(LakelogError):
    """Bytes of the log that are not the whole, checked record expected there.

    :ivar offset: physical offset of the record's first byte
    :ivar expected: the value that a check expected
    :ivar found: the value found
    :ivar path: the segment file, if known
    """

    def __init__(
        self,
        what: str,
        *,
        offset: int,
        expected: object = None,
        found: object = None,
        path: str | PathLike[str] | None = None,
    ) -> None:
        place = f"{path}: " if path is not None else ""
        detail = "" if expected is None else f" (expected {expected}, found {found})"
        super().__init__(f"{place}record at offset {offset}: {what}{detail}")
        self.what = what
        self.offset = offset
        self.expected = expected
        self.found = found
        self.path = path


class IllegalMessage(LakelogError, ValueError):
    """A message that no record can hold.

    :ivar status: the status of the refused put
    """

    def __init__(self, what: str, *, status: PutStatus) -> None:
        super().__init__(what)
        self.status = status


class PutRefused(LakelogError):
    """A refused put: its messages are not in the log and will never be read.

    A batch larger than a segment is appended in pieces. If one piece is refused, the preceding
    pieces stay in the log.

    :ivar status: RocketMQ's name for the reason
    :ivar accepted: results of the leading messages of a batch that *are* in the log
    """

    accepted: Sequence[PutResult] = ()

    def __init__(self, status: PutStatus, what: str) -> None:
        super().__init__(f"{status.name}: {what}")
        self.status = status
