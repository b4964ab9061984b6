"""Up to which micro-batch a query is in the log: one small file per query, written durably."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import attrs

from lakelog.files import FileSystem, read_file, write_file
from lakelog_spark.writing.errors import BadJournal

LAST_FILE: Final = "last_batch"


@attrs.frozen
class LastBatch:
    """The note of one query.

    :ivar folder: what belongs to the query
    """

    files: FileSystem
    folder: Path

    def read(self) -> int:
        """The number of the last batch that is in the log; -1 before the first one."""
        content = read_file(self.files, self.folder / LAST_FILE)
        if content is None:
            return -1
        try:
            return int(content)
        except ValueError:
            raise BadJournal(self.folder / LAST_FILE, repr(content[:80])) from None

    def write(self, number: int) -> None:
        """Batch ``number`` is in the log, and all before it."""
        self.files.make_dir(self.folder)
        write_file(self.files, self.folder / LAST_FILE, b"%d\n" % number)
