"""The saved progress of timers: RocketMQ's ``config/timercheck`` and a file of lakelog's own.

``timercheck`` is ``i64 read time, ms | i64 flushed position of timerlog | i64 queue offset | i64
master's queue offset | i64, i64 ms, i64 version``, big-endian, in 4096 bytes. RocketMQ reads the
queue of timers from the smaller queue offset on. A message below it is delivered if its
``TIMER_OUT_MS`` is before the read time. Source: RocketMQ 5.3.3, ``TimerCheckpoint`` and
``TimerMessageStore.recover``.

The own file says to the millisecond what was delivered. It counts only as long as ``timercheck``
is unchanged: otherwise RocketMQ has served the directory in between.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from lakelog.files.filesystem import FileSystem, overwrite_file, read_file
from lakelog.format.layout import CONFIG_DIR
from lakelog_rocketmq.config.configfile import load_config, save_config

CHECKPOINT: Final = "timercheck"
OWN_FILE: Final = "timerProgress.json"
_FIELDS: Final = struct.Struct(">7q")
_FILE_BYTES: Final = 4096
_OWN_FIELDS: Final = "lowestOffset", "readOffset", "dueBeforeMs"
_SLOT_MS: Final = 1_000
"""RocketMQ's ``timerPrecisionMs``, to which it rounds ``TIMER_OUT_MS`` down."""


@attrs.frozen
class TimerProgress:
    """Which timer messages were delivered.

    A message was delivered if it is below ``read_offset`` and due before ``due_before_ms``.

    :ivar lowest_offset: the lowest queue offset of a message that waits; 0 if unknown
    :ivar read_offset: queue offset below which all messages were read
    :ivar due_before_ms: a time in ms since 1970
    :ivar by_slot: whether that is compared with ``TIMER_OUT_MS`` instead of the exact time
    """

    lowest_offset: int = 0
    read_offset: int = 0
    due_before_ms: int = 0
    by_slot: bool = True

    def is_delivered(self, queue_offset: int, due_ms: int, slot_ms: int) -> bool:
        """Whether a message with these times was delivered."""
        time_ms = slot_ms if self.by_slot else due_ms
        return queue_offset < self.read_offset and time_ms < self.due_before_ms


def load_progress(files: FileSystem, path: Path) -> TimerProgress:
    """The progress in the store directory ``path``; raises ``CorruptConfig``, ``OSError``."""
    checkpoint = read_file(files, path / CONFIG_DIR / CHECKPOINT) or b""
    if len(checkpoint) < _FIELDS.size:
        return TimerProgress()
    fields = _FIELDS.unpack_from(checkpoint)
    own = load_config(files, path / CONFIG_DIR / OWN_FILE, _read_own).value
    if own is not None and own[0] == list(fields):
        return own[1]
    read_time_ms, _, queue_offset, masters_offset = fields[:4]
    return TimerProgress(0, min(queue_offset, masters_offset), read_time_ms)


def _read_own(content: Mapping[str, Any]) -> tuple[list[int], TimerProgress] | None:
    if not content:
        return None
    lowest, read, due = (int(content[name]) for name in _OWN_FIELDS)
    return list(content["timercheck"]), TimerProgress(lowest, read, due, by_slot=False)


def save_progress(files: FileSystem, path: Path, progress: TimerProgress, now_ms: int) -> None:
    """Replace both files; raises ``OSError``.

    After a crash between them more messages come again, and none is lost.
    """
    former = read_file(files, path / CONFIG_DIR / CHECKPOINT) or b""
    _, log_position, _, _, state, _, version = _FIELDS.unpack_from(
        former.ljust(_FIELDS.size, b"\0")
    )
    slot_ms = max(0, progress.due_before_ms // _SLOT_MS - 1) * _SLOT_MS
    fields = [
        slot_ms, log_position, progress.lowest_offset, progress.read_offset, state, now_ms,
        version + 1,
    ]  # fmt: skip  # in the order of the format
    files.make_dir(path / CONFIG_DIR)
    overwrite_file(
        files, path / CONFIG_DIR / CHECKPOINT, _FIELDS.pack(*fields).ljust(_FILE_BYTES, b"\0")
    )
    content = {
        "timercheck": fields,
        "lowestOffset": progress.lowest_offset,
        "readOffset": progress.read_offset,
        "dueBeforeMs": progress.due_before_ms,
    }
    save_config(files, path / CONFIG_DIR / OWN_FILE, content)
