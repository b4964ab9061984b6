"""What ``spark.read.format("lakelog")`` can be told; anything else is refused."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import attrs

from lakelog.errors import SettingsError, UnknownSetting

PATH: Final = "path"
CORRUPT: Final = "corrupt"
UNTIL: Final = "until"
FLUSHED: Final = "flushed"
READABLE: Final = "readable"
KNOWN: Final = (PATH, CORRUPT, UNTIL)
_SOURCE: Final = "the options of the data source"


@attrs.frozen
class ReadOptions:
    """Options of a read, checked.

    :ivar path: the store directory, absolute
    :ivar skip_corrupt: whether damage is passed over and logged; else it ends the read
    :ivar until: ``flushed``: up to what is durable, which no crash takes back; ``readable``: all
        that can be read; ``None``: ``flushed`` where it is known, and else ``readable``. It is
        not known beside a living RocketMQ, and after its crash
    """

    path: Path
    skip_corrupt: bool = False
    until: str | None = None

    @classmethod
    def of(cls, given: Mapping[str, str]) -> ReadOptions:
        """Check what Spark was given; raises :class:`~lakelog.errors.SettingsError`."""
        for key in given:
            _check_known(key)
        if not given.get(PATH):
            raise SettingsError("name a store directory: .load('STORE')", key=PATH, source=_SOURCE)
        return cls(
            _local(given[PATH]), _skips(given.get(CORRUPT, "fail")), _until(given.get(UNTIL))
        )


def _check_known(key: str) -> None:
    if key == "paths":
        raise SettingsError("one load reads one store: union several", key=key, source=_SOURCE)
    if key not in KNOWN:
        nearest = get_close_matches(key, KNOWN, 1)
        hint = f"did you mean {nearest[0]!r}?" if nearest else f"known are {', '.join(KNOWN)}"
        raise UnknownSetting(f"no such option; {hint}", key=key, source=_SOURCE)


def _local(path: str) -> Path:
    """The directory: executors open it as a folder that each of them sees under the same name."""
    parts = urlsplit(path)
    if parts.scheme == "file":
        return Path(unquote(parts.path)).absolute()
    if "://" in path:
        raise SettingsError(
            f"{path} is no directory: mount it, under the same path on every executor",
            key=PATH,
            source=_SOURCE,
        )
    return Path(path).absolute()


def _skips(corrupt: str) -> bool:
    if corrupt not in ("fail", "skip"):
        raise SettingsError(f"{corrupt!r} is neither fail nor skip", key=CORRUPT, source=_SOURCE)
    return corrupt == "skip"


def _until(until: str | None) -> str | None:
    if until not in (None, FLUSHED, READABLE):
        raise SettingsError(
            f"{until!r} is neither {FLUSHED} nor {READABLE}", key=UNTIL, source=_SOURCE
        )
    return until
