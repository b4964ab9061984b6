"""RocketMQ settings that have a meaning only in combination.

A function that converts a value raises ``ValueError`` if the text has another form.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

from lakelog.format.layout import COMMITLOG_DIR
from lakelog.settings.model import StoreSettings
from lakelog_rocketmq.keys import truth, whole

ROOT: Final = "storePathRootDir"
COMMITLOG: Final = "storePathCommitLog"
LIGHT: Final = ("enableLmq", "enableMultiDispatch")
HOST: Final = ("brokerIP1", "listenPort")
ROLE: Final = ("brokerRole", "enableControllerMode")
DISK: Final = {
    "max_used_ratio": ("diskMaxUsedSpaceRatio", 75, 10, 95),
    "clean_forcibly_ratio": ("diskSpaceCleanForciblyRatio", 85, 30, 85),
    "warning_ratio": ("diskSpaceWarningLevelRatio", 90, 35, 90),
}
"""Disk usage limits in ascending order: RocketMQ's name, default and bounds, in percent."""
COMBINED: Final = frozenset(
    {ROOT, COMMITLOG, *LIGHT, *HOST, *ROLE, *(row[0] for row in DISK.values())}
)
"""The keys that this module translates."""


@attrs.frozen
class Outcome:
    """The combined meaning of some settings.

    :ivar value: lakelog's value
    :ivar keys: the RocketMQ keys that it comes from
    """

    value: object
    keys: tuple[str, ...]


def light_queues(texts: Mapping[str, str]) -> Outcome | None:
    """Whether light queues are fed: only if both switches are on."""
    given = tuple(key for key in LIGHT if key in texts)
    on = [truth(texts[key]) for key in given]
    return Outcome(len(on) == len(LIGHT) and all(on), given) if given else None


def replica(texts: Mapping[str, str]) -> Outcome | None:
    """Whether the broker is a replica; with a controller, the file does not determine it."""
    role, controlled = texts.get(ROLE[0], "").strip(), truth(texts.get(ROLE[1], "false"))
    return Outcome(True, (ROLE[0],)) if role == "SLAVE" and not controlled else None


def store_host(texts: Mapping[str, str]) -> Outcome | None:
    """The address and port in records; missing parts take lakelog's default."""
    given = tuple(key for key in HOST if key in texts)
    default = str(attrs.fields(StoreSettings).store_host.default)
    default_ip, _, default_port = default.rpartition(":")
    ip = texts.get(HOST[0], default_ip).strip()
    port = whole(texts.get(HOST[1], default_port))
    return Outcome(f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}", given) if given else None


def disk_line(texts: Mapping[str, str], line: str) -> Outcome | None:
    """One of the limits of :data:`DISK`, as a ratio.

    RocketMQ checks the highest limit first, so that a limit above the next higher one is capped by
    it.
    """
    from_here = list(DISK.values())[list(DISK).index(line) :]
    percents = {
        key: min(max(whole(texts.get(key, str(usual))), least), most)
        for key, usual, least, most in from_here
    }
    (own, usual, *_), percent = from_here[0], min(percents.values())
    if own not in texts and percent == usual:
        return None
    return Outcome(percent / 100, tuple(key for key in percents if key in texts))


def commitlog_path(texts: Mapping[str, str], path: Path) -> Outcome | None:
    """The directory of the segments, if it is not the default.

    ``path`` overrides the root directory in the file. A commit log inside that root is looked up at
    the same relative place in ``path``, so that a copy never refers to its original. A commit log
    outside the root counts only if the root is ``path``, or is not set.
    """
    text = texts.get(COMMITLOG, "").strip()
    if "," in text:
        raise ValueError("several commit log directories are not supported; keep one")
    root = texts.get(ROOT, "").strip()
    inside = _within(text, root) if text and root else None
    if not text or (inside is None and root and not same_directory(root, path)):
        return None
    place = path / inside if inside is not None else Path(text)
    usual = same_directory(place, path / COMMITLOG_DIR)
    return None if usual else Outcome(str(place), (COMMITLOG,))


def path_notes(texts: Mapping[str, str], path: Path) -> dict[str, str]:
    """Notes on paths that have no effect."""
    root, log = texts.get(ROOT, "").strip(), texts.get(COMMITLOG, "").strip()
    if not root or same_directory(root, path):
        return {}
    notes = {ROOT: f"it is {root}, and the store opened is {path}"}
    if log and _within(log, root) is None:
        notes[COMMITLOG] = f"it is {log}, of the store in {root}; set commitlog_path if it is meant"
    return notes


def same_directory(one: str | Path, other: str | Path) -> bool:
    """Whether two names resolve to one directory."""
    return os.path.realpath(one) == os.path.realpath(other)


def _within(text: str, root: str) -> Path | None:
    """``text`` relative to ``root``, or ``None`` if it is outside."""
    place, base = Path(os.path.normpath(text)), Path(os.path.normpath(root))
    return place.relative_to(base) if place.is_relative_to(base) else None
