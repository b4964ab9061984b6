"""Writes JSON to stdout, and files that a user names."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from lakelog.errors import LakelogError
from lakelog_cli import exitcodes
from lakelog_cli.schema import plain_value
from lakelog_cli.shown import shown
from lakelog_format.fields.layout import COMMITLOG_DIR


class FileNotWritten(LakelogError):
    """A file that a user named cannot be written."""

    exit_code = exitcodes.NO_OUTPUT


def write_lines(rows: Iterable[Mapping[str, Any]]) -> None:
    """Write one JSON object per line."""
    sys.stdout.writelines(f"{json.dumps(row, separators=(',', ':'))}\n" for row in rows)


def write_file(path: Path, text: str) -> None:
    """Write a whole file; on an error the former one stays. Raises :class:`FileNotWritten`.

    A device or a pipe is written to directly: a rename would replace it. A path in a store
    directory is refused: the file could replace a segment or the checkpoint.
    """
    target = Path(os.path.realpath(path))
    for store in target.parents:
        if (store / COMMITLOG_DIR).is_dir():
            raise FileNotWritten(
                f"{shown(str(path))} cannot be written: it is in the store {shown(str(store))}; "
                "name a file elsewhere"
            )
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        if target.exists() and not target.is_file():
            target.write_text(text)
            return
        temporary.write_text(text)
        temporary.replace(target)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        reason = error.strerror or str(error)
        raise FileNotWritten(f"{shown(str(path))} cannot be written: {reason}") from None


def write_document(document: object) -> None:
    """Write one indented JSON document."""
    sys.stdout.write(f"{json.dumps(document, indent=2, default=plain_value)}\n")
