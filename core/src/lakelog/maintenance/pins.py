"""Pins: the positions of followers, running or not, which keep segments from deletion.

Each is a file ``lakelog/followers/NAME.json`` of the store directory, replaced atomically and
durably::

    {"version": 1, "position": OFFSET, "fingerprint": {"offset": O, "size": S, "crc": C} or null,
     "destination": TEXT, "time_ms": MS SINCE 1970}

A follower needs every segment that ends behind its position. An unreadable pin holds all segments.
``lakelog pins`` shows pins and removes them.

A pin may be of an earlier log: a log that was cut, or restored from an older copy, continues below
a pin's position with messages that its follower never read. Going by the position alone, they would
be deleted unread. So a pin holds every segment if its position is behind the log's end, or if the
log lacks the record of its fingerprint. If that record was already deleted, nothing can be
detected.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs
from attrs import validators

from lakelog.arguments import WrongValue
from lakelog.errors import LakelogError, OffsetOutOfRange, StoreError
from lakelog.files.filesystem import FileSystem, overwrite_file, read_file
from lakelog.files.identity import parsed, shown
from lakelog.format.checksum import Fingerprint, is_whole
from lakelog.format.layout import OWN_DIR
from lakelog.format.record_batch import Blank, Damage, Piece

FOLLOWERS_DIR: Final = "followers"

_VERSION: Final = 1

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

_SUFFIX: Final = ".json"

_TEMPORARY: Final = ".tmp"


def _name_is_good(_pin: object, _attribute: object, name: str) -> None:
    check_name(name)


@attrs.frozen
class Pin:
    """The state of one follower.

    :ivar name: identifies it for renewal and removal
    :ivar position: it has read everything before this log offset
    :ivar time_ms: time of the last renewal, in ms since 1970
    :ivar destination: the place to which it delivers messages, for display
    :ivar fingerprint: the last record before ``position``, to recognise the log
    :ivar problem: why its need is unknown; it then holds all segments. If the cause is an
        unreadable file, it never expires
    """

    name: str = attrs.field(validator=_name_is_good)
    position: int = attrs.field(validator=is_whole)
    time_ms: int = attrs.field(validator=is_whole)
    destination: str = attrs.field(default="", validator=validators.instance_of(str))
    fingerprint: Fingerprint | None = None
    problem: str | None = None

    def holds(self, end_offset: int, now_ms: int, expires_after_ms: int | None = None) -> bool:
        """Whether the follower still needs a segment that ends at ``end_offset``."""
        return self.position < end_offset and not self.has_expired(now_ms, expires_after_ms)

    def has_expired(self, now_ms: int, expires_after_ms: int | None) -> bool:
        """Whether it was not renewed for ``expires_after_ms``; ``None`` means it never expires."""
        if expires_after_ms is None or self.problem is not None:
            return False
        return now_ms - self.time_ms > expires_after_ms


def holders(
    pins: Iterable[Pin], end_offset: int, now_ms: int, expires_after_ms: int | None = None
) -> tuple[str, ...]:
    """The names of pins that still need a segment that ends at ``end_offset``, sorted."""
    found = (each.name for each in pins if each.holds(end_offset, now_ms, expires_after_ms))
    return tuple(sorted(found))


def read_pins(files: FileSystem, path: Path) -> tuple[Pin, ...]:
    """All pins of the store directory ``path``, by name.

    An unreadable file raises nothing: its pin has a ``problem``, and holds all segments.
    """
    try:
        names = list(_names(path))
    except OSError as error:
        folder = path / OWN_DIR / FOLLOWERS_DIR
        what = f"it cannot be read ({error.strerror or error}); nothing is deleted until it can"
        return (Pin(FOLLOWERS_DIR, 0, 0, problem=str(StoreError(what, path=folder))),)
    found = (_read(files, path, name) for name in names)
    return tuple(each for each in found if each is not None)


def write_pin(files: FileSystem, path: Path, pin: Pin) -> None:
    """Replace a pin atomically and durably; on ``OSError`` the former one stays.

    Takes no lock: if several processes write the same pin, the last one wins.
    """
    folder = path / OWN_DIR / FOLLOWERS_DIR
    files.make_dir(folder)
    _tidy(files, folder)
    temporary = folder / f"{pin.name}{_SUFFIX}.{os.getpid()}{_TEMPORARY}"
    overwrite_file(files, temporary, _content(pin))
    files.rename(temporary, pin_file(path, pin.name))
    files.sync_dir(folder)


def remove_pin(files: FileSystem, path: Path, name: str) -> bool:
    """Remove a pin durably, even an unreadable one; ``False`` if there is none.

    Raises :class:`~lakelog.errors.StoreError` for a folder in place of the pin, and ``OSError``.
    """
    file = pin_file(path, name)
    try:
        files.unlink(file)
    except FileNotFoundError:
        return False
    except IsADirectoryError:
        raise StoreError("it is a folder, not a pin; remove it by hand", path=file) from None
    files.sync_dir(file.parent)
    return True


def pin_file(path: Path, name: str) -> Path:
    """The path of the pin ``name`` in the store directory ``path``."""
    return path / OWN_DIR / FOLLOWERS_DIR / (check_name(name) + _SUFFIX)


def check_name(name: str) -> str:
    """Return the name; raises ``ValueError`` if no pin can have it."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    raise WrongValue(
        f"{name!r} is not a valid name of a pin; give 1 to 100 ASCII letters, digits, '.', '_' and "
        "'-', the first one a letter or a digit"
    )


def _names(path: Path) -> Iterator[str]:
    """Names of all pins, including entries that are not regular files."""
    folder = path / OWN_DIR / FOLLOWERS_DIR
    for file in sorted(each.name for each in folder.iterdir()) if folder.exists() else ():
        name = file.removesuffix(_SUFFIX)
        if name != file and _NAME.fullmatch(name):
            yield name


def _read(files: FileSystem, path: Path, name: str) -> Pin | None:
    """Read a pin; ``None`` if it was removed since it was listed."""
    file = pin_file(path, name)
    try:
        content = read_file(files, file)
    except OSError as error:
        return _unreadable(file, name, f"it cannot be read ({error.strerror or error})")
    if content is None:
        return None
    match parsed(content):
        case {"version": int(version)} if version != _VERSION:
            return _unreadable(file, name, f"its version is {version}, not {_VERSION}")
        case {"position": position, "time_ms": time_ms, "destination": destination} as found:
            try:
                last = _fingerprint(found.get("fingerprint"))
                return Pin(name, position, time_ms, destination, last)
            except (TypeError, ValueError):
                pass
    return _unreadable(file, name, f"it is damaged, and holds {shown(content)}")


def _unreadable(file: Path, name: str, why: str) -> Pin:
    what = (
        f"{why}; nothing of the log is deleted while it is there: let its follower write it "
        f"again, or remove it with 'lakelog pins remove STORE {name}'"
    )
    return Pin(name, 0, 0, problem=str(StoreError(what, path=file)))


def _fingerprint(found: Mapping[str, Any] | None) -> Fingerprint | None:
    return None if found is None else Fingerprint(**found)


def _content(pin: Pin) -> bytes:
    last = pin.fingerprint
    found = {
        "version": _VERSION,
        "position": pin.position,
        "fingerprint": None if last is None else attrs.asdict(last),
        "destination": pin.destination,
        "time_ms": pin.time_ms,
    }
    return json.dumps(found, indent=2, ensure_ascii=False).encode() + b"\n"


def _tidy(files: FileSystem, folder: Path) -> None:
    """Remove temporary files of writers that were killed before the rename."""
    for name, _ in files.list(folder):
        writer = name.removesuffix(_TEMPORARY).rpartition(".")[2]
        if name.endswith(_TEMPORARY) and writer.isdigit() and not Path("/proc", writer).exists():
            try:
                files.unlink(folder / name)
            except FileNotFoundError:
                continue  # another writer was faster


@attrs.frozen
class PinValidator:
    """Compares pins with a log.

    :ivar pieces: reads the log between two offsets
    """

    pieces: Callable[[int, int], Iterable[Piece]]

    def judged(self, pin: Pin, minimum: int, end: int) -> Pin:
        """Return ``pin``; with a ``problem`` if it is of another log, so that it holds everything.

        :param pin: read before ``end`` was taken: a later one could be past it
        """
        why = pin.problem or self._why(pin, minimum, end)
        return pin if why == pin.problem else attrs.evolve(pin, position=0, problem=why)

    def _why(self, pin: Pin, minimum: int, end: int) -> str | None:
        last = pin.fingerprint
        if pin.position > end:
            return _problem(pin, f"the log ends at {end}")
        if last is None or last.offset < minimum or self._is_there(last):
            return None
        return _problem(pin, f"the record that it read at offset {last.offset} is not there")

    def _is_there(self, last: Fingerprint) -> bool:
        try:
            piece = next(iter(self.pieces(last.offset, last.offset + last.size)), None)
        except OffsetOutOfRange:  # deleted meanwhile
            return True
        except (LakelogError, OSError):
            return False
        if piece is None or isinstance(piece, Blank | Damage):
            return False
        if int(piece.physical_offsets[0]) != last.offset:
            return False
        record = piece.record(0)
        return (len(record), zlib.crc32(record)) == (last.size, last.crc)


def _problem(pin: Pin, found: str) -> str:
    return (
        f"pin {pin.name!r} is of another log: its position is {pin.position}, but {found}; this "
        "log was cut or restored since. No segment is deleted while the pin exists: let its "
        "follower start from the beginning, or remove the pin with 'lakelog pins remove'"
    )
