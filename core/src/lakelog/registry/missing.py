"""The error for a chosen strategy that is not installed, with a remedy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from lakelog.errors import MissingPlugin
from lakelog.interfaces import Kind
from lakelog.registry.sources import PluginSource
from lakelog.registry.words import nearest, spoken

FIRST_PARTY: Final[Mapping[str, tuple[Kind, str]]] = {
    "mmap": (Kind.WRITER, "lakelog-mmap"),
    "staged": (Kind.WRITER, "lakelog-direct"),
    "direct": (Kind.WRITER, "lakelog-direct"),
    "group-commit": (Kind.FLUSH_STRATEGY, "lakelog-flush"),
    "timed": (Kind.FLUSH_STRATEGY, "lakelog-flush"),
    "consume-queue": (Kind.DISPATCHER, "lakelog-queues"),
    "hash-index": (Kind.DISPATCHER, "lakelog-hash-index"),
    "retention": (Kind.CLEANER, "lakelog-retention"),
    "psutil": (Kind.DISK_WATCHER, "lakelog-retention"),
    "lake": (Kind.FOLLOWER, "lakelog-lake"),
    "fsspec": (Kind.SEGMENT_SOURCE, "lakelog-archive"),
    "native": (Kind.ACCELERATOR, "lakelog-native"),
    "broker-conf": (Kind.SETTINGS_FORMAT, "lakelog-rocketmq"),
}
"""Strategies of this project that have their own package."""


def missing(
    kind: Kind,
    name: str,
    installed: Mapping[str, Kind],
    off: Mapping[str, PluginSource],
    left_out: Iterable[PluginSource] = (),
) -> MissingPlugin:
    """Build the error for a ``name`` of ``kind`` that no plugin offers.

    :param installed: the kind of every strategy on offer, by name
    :param off: plugins that are switched off
    :param left_out: installed plugins that are replaced by those given to ``open``
    """
    if name in installed:
        return MissingPlugin(_wrong_kind(kind, name, installed[name], installed))
    if name in FIRST_PARTY and FIRST_PARTY[name][0] is not kind:
        return MissingPlugin(_wrong_kind(kind, name, FIRST_PARTY[name][0], installed))
    for source in () if _is_off(name, off) else left_out:
        if _brings(source, name):
            return MissingPlugin(
                f"the {spoken(kind)} {name!r} is installed ({source.distribution or source.name}), "
                "but plugins=[...] is used instead of installed plugins: add it there"
            )
    return MissingPlugin(
        f"no {spoken(kind)} {name!r} is installed{_remedy(kind, name, installed, off)}"
    )


def _wrong_kind(kind: Kind, name: str, found: Kind, installed: Mapping[str, Kind]) -> str:
    return f"{name!r} is a {spoken(found)}, and a {spoken(kind)} is wanted{_there(kind, installed)}"


def _remedy(
    kind: Kind, name: str, installed: Mapping[str, Kind], off: Mapping[str, PluginSource]
) -> str:
    package = _package(name)
    for source in off.values():
        if _brings(source, name):
            return f": the plugin {source.name!r} is switched off; remove it from what disables it"
    if package:
        return f": pip install {package}"
    return _there(kind, installed) + _meant(kind, name, installed)


def _package(name: str) -> str | None:
    return FIRST_PARTY[name][1] if name in FIRST_PARTY else None


def _is_off(name: str, off: Mapping[str, PluginSource]) -> bool:
    return any(_brings(source, name) for source in off.values())


def _brings(source: PluginSource, name: str) -> bool:
    """Whether a plugin provides the strategy ``name``, judged by its name or its package."""
    found = source.distribution
    return source.name == name or (found is not None and found.name == _package(name))


def _there(kind: Kind, installed: Mapping[str, Kind]) -> str:
    names = sorted(name for name, found in installed.items() if found is kind)
    return f"; installed are {', '.join(names)}" if names else "; none is installed"


def _meant(kind: Kind, name: str, installed: Mapping[str, Kind]) -> str:
    known = {item for item, found in installed.items() if found is kind}
    known |= {item for item, (found, _) in FIRST_PARTY.items() if found is kind}
    meant = nearest(name, sorted(known))
    if not meant:
        return ""
    package = "" if meant in installed else f" (pip install {FIRST_PARTY[meant][1]})"
    return f"; did you mean {meant!r}{package}?"
