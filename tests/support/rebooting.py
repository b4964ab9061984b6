"""A store as a machine finds it that was started again."""

from __future__ import annotations

import struct
import uuid
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Final

from lakelog.processes import shared_page

BOOT_ID_AT: Final = 8
CHECKED_BYTES: Final = 32
"""Begin of a group's state; its check sum follows."""


def rebooted(path: Path) -> None:
    """As after a power cut: the store was written before the kernel had its present boot id.

    For all processes: only the shared page and the states of groups have that id. The cut may have
    taken them.
    """
    for each in (shared_page.page_path(path), *path.glob("lakelog/groups/*.state")):
        with suppress(FileNotFoundError), each.open("r+b") as file:
            file.seek(BOOT_ID_AT)
            file.write(uuid.uuid4().bytes)
            if each.suffix == ".state":
                file.seek(0)
                file.write(struct.pack("Q", zlib.crc32(file.read(CHECKED_BYTES))))
