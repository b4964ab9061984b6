"""Copies store directories, also of running and of killed stores."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from pathlib import Path

from lakelog.format.layout import TMP_DIR


def copy_store(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> Path:
    """Copy a directory to a new name, without sockets, which are useless in a copy.

    Holes stay holes: an index file of 420 MB has mostly nothing else.

    A running store creates segments in a temporary folder and renames them; files that vanish from
    there are skipped. Raises like :func:`shutil.copytree`.
    """
    return Path(shutil.copytree(source, target, ignore=_sockets, copy_function=_copy))


def _copy(source: str, target: str) -> None:
    try:
        with open(source, "rb") as reading, open(target, "wb") as writing:
            size_bytes = os.fstat(reading.fileno()).st_size
            _copy_data(reading.fileno(), writing.fileno(), size_bytes)
            writing.truncate(size_bytes)
        shutil.copystat(source, target)
    except FileNotFoundError:
        if Path(source).parent.name != TMP_DIR:
            raise


def _copy_data(reading: int, writing: int, size_bytes: int) -> None:
    end = 0
    while end < size_bytes:
        try:
            start = os.lseek(reading, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole follows
                return
            raise
        end = os.lseek(reading, start, os.SEEK_HOLE)
        os.lseek(reading, start, os.SEEK_SET)
        os.lseek(writing, start, os.SEEK_SET)
        while start < end:
            sent = os.sendfile(writing, reading, None, end - start)
            if not sent:  # the file has become shorter meanwhile
                return
            start += sent


def _sockets(folder: str, names: list[str]) -> set[str]:
    return {name for name in names if _is_socket(os.path.join(folder, name))}


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except FileNotFoundError:
        return False
