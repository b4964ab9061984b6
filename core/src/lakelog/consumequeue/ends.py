"""``lakelog/queues.json``: where each queue ended at the last clean close.

After a clean stop queues are taken to be complete up to the last record that any of them knows. A
folder that somebody removed since, or files cut short, would then go unnoticed: this list tells.
``{"queues": {"TOPIC": {"QUEUE ID": END}}}``; ``END`` is the queue offset behind the last unit.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from lakelog.files import FileSystem, read_file, write_file
from lakelog.layout import OWN_DIR
from lakelog.queueoffsets import Queue

QUEUES_FILE: Final = "queues.json"
_LOG: Final = logging.getLogger("lakelog")


def read_ends(files: FileSystem, path: Path) -> dict[Queue, int]:
    """What the list says; nothing where it is not there, or not readable."""
    content = read_file(files, path / OWN_DIR / QUEUES_FILE)
    if content is None:
        return {}
    try:
        return dict(_ends(json.loads(content)["queues"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        _LOG.warning("%s is damaged and counts for nothing: %s", QUEUES_FILE, error)
        return {}


def _ends(table: Mapping[str, Mapping[str, int]]) -> Iterator[tuple[Queue, int]]:
    for topic, queues in table.items():
        for queue_id, end in queues.items():
            yield (topic, int(queue_id)), int(end)


def write_ends(files: FileSystem, path: Path, ends: Mapping[Queue, int]) -> None:
    """Replace the list durably; the queues must be durable by now.

    Where the store has no folder of lakelog's own, as in a rebuild, there is nothing to keep.
    """
    if not (path / OWN_DIR).is_dir():
        return
    table: dict[str, dict[str, int]] = {}
    for (topic, queue_id), end in sorted(ends.items()):
        table.setdefault(topic, {})[str(queue_id)] = end
    content = json.dumps({"queues": table}, ensure_ascii=False, separators=(",", ":"))
    write_file(files, path / OWN_DIR / QUEUES_FILE, content.encode() + b"\n")


def forget_ends(files: FileSystem, path: Path) -> None:
    """Remove the list, durably."""
    with suppress(FileNotFoundError):
        files.unlink(path / OWN_DIR / QUEUES_FILE)
        files.sync_dir(path / OWN_DIR)
