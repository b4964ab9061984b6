"""Looks up tags codes in ``consumequeue_ext``, for the check of queues."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from lakelog.errors import CorruptQueue
from lakelog.files.filesystem import FileSystem
from lakelog.format.units import Longs
from lakelog_interfaces.strategies.verifying import Problem
from lakelog_queues.check.checkfiles import RawUnits
from lakelog_queues.check.checkunits import Resolve, as_they_are
from lakelog_queues.files.ext import ExtFiles
from lakelog_queues.files.openfiles import OpenFiles

BROKEN: Final = "the files of tags codes do not fit together"


def ext_resolver(
    files: FileSystem, directory: Path, file_size_bytes: int, opened: OpenFiles
) -> tuple[Resolve, list[Problem]]:
    """A function that replaces addresses by tags codes, and problems with names and lengths.

    The function leaves an address unchanged if there is no unit at it.
    """
    if not directory.is_dir():
        return as_they_are, []
    try:
        ext = ExtFiles(files, directory, file_size_bytes, True, opened)
    except CorruptQueue as error:
        return as_they_are, [Problem(Path(error.path or directory), 0, BROKEN, "", str(error))]

    def resolve(units: RawUnits) -> RawUnits:
        codes = units["tags_code"].astype(np.int64)
        at = np.flatnonzero(ext.is_address(codes))
        if not len(at):
            return units
        codes[at] = _codes(ext, codes[at])
        resolved = units.copy()
        resolved["tags_code"] = codes
        return resolved

    return resolve, []


def _codes(ext: ExtFiles, addresses: Longs) -> Longs:
    try:
        return ext.resolve(addresses)[0]
    except CorruptQueue:
        if len(addresses) == 1:
            return addresses
    half = len(addresses) // 2
    return np.concatenate([_codes(ext, addresses[:half]), _codes(ext, addresses[half:])])
