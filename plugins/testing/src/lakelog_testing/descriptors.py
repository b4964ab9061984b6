"""Lists a process's open files, for tests that check for leaks.

Source: ``proc(5)``, ``/proc/PID/fd``. Descriptors that vanish during the listing, such as that of
the listing itself, are skipped.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def open_files(pid: int | None = None) -> list[tuple[int, str]]:
    """Descriptor and name of each open file, by default of this process.

    Names are the kernel's: ``socket:[1]``; that of a deleted file ends in `` (deleted)``. Raises
    ``FileNotFoundError`` if there is no such process.
    """
    folder = Path(f"/proc/{os.getpid() if pid is None else pid}/fd")
    found = list[tuple[int, str]]()
    for each in os.listdir(folder):
        with suppress(FileNotFoundError):
            found.append((int(each), os.readlink(folder / each)))
    return found


def open_in(folder: Path, pid: int | None = None) -> list[str]:
    """Names of the open files in a folder, at any depth, or of the file ``folder`` itself."""
    place = os.path.realpath(folder)
    inside = (place, place + " (deleted)")
    names = [name for _, name in open_files(pid)]
    return [name for name in names if name in inside or name.startswith(place + os.sep)]
