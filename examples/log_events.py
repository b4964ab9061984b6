"""How does a program log each event of its stores: segments, disks, failures, the end?"""

from __future__ import annotations

import logging
import sys
import tempfile
from pathlib import Path

import lakelog
import lakelog_retention.plugin
from lakelog.hooks import DiskState
from lakelog.hooks.hookspecs import hookimpl

LOG = logging.getLogger("events")


@hookimpl
def lakelog_store_opening(path: Path, read_only: bool) -> None:
    """Log the opening; an exception here would forbid it."""
    LOG.info("%s opens for %s", path.name, "reading" if read_only else "writing")


@hookimpl
def lakelog_store_recovered(path: Path) -> None:
    """Log the end of recovery; the argument ``report`` is left out."""
    LOG.info("%s is recovered", path.name)


@hookimpl
def lakelog_segment_rolled(path: Path, start_offset: int) -> None:
    """Log the start of a segment."""
    LOG.info("segment %s starts at %d", path.name, start_offset)


@hookimpl
def lakelog_segment_deleting(path: Path, start_offset: int) -> None:
    """Log a deletion before it happens; an exception here would keep the segment."""
    LOG.info("segment %s at %d will be deleted", path.name, start_offset)


@hookimpl
def lakelog_segment_deleted(path: Path, start_offset: int) -> None:
    """Log a deletion."""
    LOG.info("segment %s at %d is deleted", path.name, start_offset)


@hookimpl
def lakelog_disk_pressure(path: Path, state: DiskState) -> None:
    """Log a change of the disks' state, for the operator."""
    LOG.warning("disks of %s: %s", path.name, state.value)


@hookimpl
def lakelog_store_failed(path: Path, cause: BaseException) -> None:
    """Log a failed write or sync; the store must be opened again."""
    LOG.error("%s takes no more puts: %s", path.name, cause)


@hookimpl
def lakelog_store_closed(path: Path) -> None:
    """Log the end."""
    LOG.info("%s is closed", path.name)


def main(folder: str) -> None:
    """Fill a store that keeps three segments; this module is the plugin."""
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
    with lakelog.open(
        folder,
        plugins=[sys.modules[__name__], lakelog_retention.plugin],
        segment_size_bytes="64KiB",
        cleaner="retention",
        retention={"max_segments": 3},
        dispatchers=(),
    ) as store:
        for number in range(600):
            store.put(lakelog.Message("orders", b"order %d" % number + b"." * 400))
        store.delete_expired()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(f"{temporary}/store")
