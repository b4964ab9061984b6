"""The saved progress of timers: RocketMQ's ``config/timercheck``, and a file of lakelog.

``timercheck`` is ``i64 read time, ms | i64 flushed position of timerlog | i64 queue offset | i64
master's queue offset | i64 state version | i64 time, ms | i64 counter``, big-endian, in 4096 bytes.
RocketMQ reads the queue of timers from the smaller queue offset on. A message below that offset was
delivered if its ``TIMER_OUT_MS`` is before the read time. Source: RocketMQ 5.3.3,
``TimerCheckpoint`` and ``TimerMessageStore.recover``.

lakelog's file, ``config/timerProgress.json``, has the delivered times to the millisecond. It counts
only if ``timercheck`` is unchanged since: otherwise RocketMQ has served the directory meanwhile.
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
"""RocketMQ's ``timerPrecisionMs``: ``TIMER_OUT_MS`` is rounded down to a multiple of it."""


@attrs.frozen
class TimerProgress:
    """Defines which timer messages were delivered.

    A message was delivered if its queue offset is below ``read_offset``, and its time is before
    ``due_before_ms``.

    :ivar lowest_offset: the lowest queue offset of a waiting message; 0 if unknown
    :ivar read_offset: queue offset below which all messages were read
    :ivar due_before_ms: a time in ms since 1970
    :ivar by_slot: whether to compare ``TIMER_OUT_MS`` instead of the exact time
    """

    lowest_offset: int = 0
    read_offset: int = 0
    due_before_ms: int = 0
    by_slot: bool = True

    def is_delivered(self, queue_offset: int, due_ms: int, slot_ms: int) -> bool:
        """Whether a message was delivered.

        :param due_ms: its exact time, in ms since 1970
        :param slot_ms: its ``TIMER_OUT_MS``
        """
        time_ms = slot_ms if self.by_slot else due_ms
        return queue_offset < self.read_offset and time_ms < self.due_before_ms


def load_progress(files: FileSystem, path: Path) -> TimerProgress:
    """Read the progress in the store directory ``path``.

    Raises :class:`~lakelog.errors.CorruptConfig` and ``OSError``.
    """
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

    After a crash between the two, more messages are delivered again, and none is lost.

    :param now_ms: the present time, in ms since 1970
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
