"""The shared page ``lakelog/shared``: what the processes of one store know of its log.

8,192 bytes, mapped by each process that has the store open for writing, and by readers. A process
that finds itself alone makes it, and puts it in the place of the former one; it counts while one of
those that share byte 0 of ``lock`` lives (:mod:`lakelog.shared.membership`), and is never synced.
Words of 8 bytes in the machine's byte order, each stored at once; offsets are bytes of the log::

    byte    0  magic and version
    byte    8  boot id of the kernel, 16 bytes
    byte   24  length of a segment
    byte   64  append lock: u32 waited, u32 sequence (lakelog.shared.bytelock)
    byte   72  process id of who appends, and byte 80 since when: ms of the monotonic clock
    byte   88  not 0 while several processes append, so that none keeps the append lock
    byte  128  appended: end of what was appended; the commit point of each append
    byte  136  store time of the last record, in ms since 1970
    byte  144  intent: where the append under way starts, and byte 152 where it ends; 0 is none
    byte  160  generation of the table of queue ends (lakelog.shared.queuetable)
    byte  168  how far the last segment has blocks; an offset of the log
    byte  192  sync lock: u32 waited, u32 sequence
    byte  256  group commit, 32 bytes (lakelog.shared.groupsync)
    byte  320  minimum: first byte that is there; byte 328 dispatched: end of what queues know
    byte  512  why the store has failed: u64 length of a text in UTF-8, and the text
    byte 4096  settings that all have: u64 length of a text in JSON, and the text

Who may write to the store may write nonsense here, and so damage it, as in SQLite's shared memory.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import attrs

from lakelog.errors import SettingsError, StoreError, StoreLocked
from lakelog.files import FileSystem
from lakelog.layout import OWN_DIR
from lakelog.pages.mappedfile import Identity, identity_of, make_mapped

PAGE_FILE: Final = "shared"
PAGE_BYTES: Final = 8192
MAGIC: Final = 0x6C6B_6C73_6872_0001
"""The bytes ``lklshr`` and the version, as a number."""

# Words, counted from the start of the page.
SEGMENT_BYTES: Final = 3
APPENDER_PID: Final = 9
APPENDER_SINCE: Final = 10
SEVERAL: Final = 11
APPENDED: Final = 16
LAST_TIMESTAMP: Final = 17
INTENT_START: Final = 18
INTENT_END: Final = 19
TABLE_GENERATION: Final = 20
ALLOCATED: Final = 21
FAILED: Final = 34
"""In the words of group commit."""
MINIMUM: Final = 40
DISPATCHED: Final = 41

# Bytes.
APPEND_LOCK_AT: Final = 64
SYNC_LOCK_AT: Final = 192
GROUP_SYNC_AT: Final = 256
_BOOT = slice(8, 24)
_FAILURE = slice(512, 4096)
_SETTINGS = slice(4096, PAGE_BYTES)
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def page_path(path: Path) -> Path:
    """Where the page of the store directory ``path`` stands."""
    return path / OWN_DIR / PAGE_FILE


@attrs.frozen(eq=False)
class SharedPage:
    """The page, mapped.

    :ivar memory: all of it
    :ivar words: the same in words of 8 bytes
    :ivar identity: tells the file from another one of its name
    """

    memory: memoryview
    words: memoryview[int]
    identity: Identity | None

    @classmethod
    def _of(cls, memory: memoryview, path: Path) -> SharedPage:
        return cls(memory, memory.cast("Q"), identity_of(path, PAGE_BYTES))

    @classmethod
    def make(
        cls, files: FileSystem, path: Path, segment_bytes: int, settings: Mapping[str, Any]
    ) -> SharedPage:
        """A new page, all positions 0; for a process alone, before it lets others in.

        :param settings: which all processes must have, as JSON takes them

        Raises ``OSError`` where there is no room, and then leaves the former page. Raises
        :class:`~lakelog.errors.SettingsError` where the settings do not fit.
        """
        made, target = page_path(path).with_suffix(".new"), page_path(path)
        text = _dumped(settings)
        if 8 + len(text) > len(range(PAGE_BYTES)[_SETTINGS]):
            raise SettingsError(f"{len(text)} bytes of settings do not fit into the shared page")
        with suppress(FileNotFoundError):
            files.unlink(made)  # of a process that died here
        try:
            memory = make_mapped(files, made, PAGE_BYTES)
            _store(memory[_SETTINGS], text)
            memory[_BOOT] = _boot_id()
            words = memory.cast("Q")
            words[SEGMENT_BYTES] = segment_bytes
            words[0] = MAGIC
            files.rename(made, target)
        except BaseException:  # Ctrl-C too
            with suppress(OSError):
                files.unlink(made)
            raise
        return cls._of(memory, target)

    @classmethod
    def join(cls, files: FileSystem, path: Path) -> SharedPage:
        """The page of those that have the store open; for a process that is not alone.

        Raises :class:`~lakelog.errors.StoreError` where there is none that it can go by, and
        :class:`~lakelog.errors.StoreLocked` where another host has the store.
        """
        target = page_path(path)
        try:
            file = files.open(target, write=True)
        except FileNotFoundError:
            raise _not_there(target) from None
        try:
            if file.size() < PAGE_BYTES:
                raise _not_there(target)
            page = cls._of(memoryview(file.map(PAGE_BYTES, writable=True)), target)
        finally:
            file.close()
        if page.words[0] != MAGIC:
            raise StoreError(
                "the processes that have this store open are of another version of lakelog, or its "
                "shared page is damaged; close it in all of them, then open it again",
                path=target,
            )
        if page.memory[_BOOT] != _boot_id():
            raise StoreLocked(
                "a process of another host, or of another system on this one, has this store open; "
                "processes of one host only can share a store: close it there",
                path=path,
            )
        return page

    @property
    def settings(self) -> dict[str, Any]:
        """Those that all have; empty where the text is damaged."""
        try:
            found = json.loads(_text(self.memory[_SETTINGS]))
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    def check(self, settings: Mapping[str, Any], path: Path) -> None:
        """Raise :class:`~lakelog.errors.SettingsError` for the first that differs from all's."""
        theirs, ours = self.settings, json.loads(_dumped(settings))
        for key in sorted({*theirs, *ours}):
            if theirs.get(key) != ours.get(key):
                raise SettingsError(
                    f"the processes that have {path} open go by {theirs.get(key)!r}, and this one "
                    f"by {ours.get(key)!r}; all have to have the same",
                    key=key,
                )

    @property
    def failure(self) -> str | None:
        """Why the store has failed, if a process said so."""
        return _text(self.memory[_FAILURE]) or None

    def fail(self, why: str) -> None:
        """Say why, unless another process has; the length comes last."""
        if self.failure is None:
            _store(self.memory[_FAILURE], (why or "unknown").encode())


def _dumped(settings: Mapping[str, Any]) -> bytes:
    return json.dumps(settings, sort_keys=True, default=str).encode()


def _store(place: memoryview, text: bytes) -> None:
    length = min(len(text), len(place) - 8)
    place[8 : 8 + length] = text[:length]
    place[:8].cast("Q")[0] = length


def _text(place: memoryview) -> str:
    length = min(place[:8].cast("Q")[0], len(place) - 8)
    return str(place[8 : 8 + length], "utf-8", "replace")


def _boot_id() -> bytes:
    """Zeros where the kernel does not say it, as all processes of it then find."""
    try:
        return bytes.fromhex(_BOOT_ID.read_text().strip().replace("-", ""))
    except (OSError, ValueError):
        return bytes(16)


def _not_there(target: Path) -> StoreError:
    return StoreError(
        "the page that the processes of this store share is gone, or was cut short; close the "
        "store in all of them, then open it again",
        path=target,
    )
