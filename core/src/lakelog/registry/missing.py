"""The error for a chosen strategy that is not installed, with a remedy; suggestions for names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from lakelog.registry.discovery import PluginSource
from lakelog.settings.unknown import nearest
from lakelog_interfaces.errors import MissingPlugin
from lakelog_interfaces.strategies import Kind

FIRST_PARTY: Final[Mapping[str, tuple[Kind, str]]] = {
    "mmap": (Kind.WRITER, "lakelog-mmap"),
    "staged": (Kind.WRITER, "lakelog-direct"),
    "direct": (Kind.WRITER, "lakelog-direct"),
    "group-commit": (Kind.FLUSH_STRATEGY, "lakelog-flush"),
    "timed": (Kind.FLUSH_STRATEGY, "lakelog-flush"),
    "rocketmq-ha": (Kind.REPLICATOR, "lakelog-replication"),
    "consume-queue": (Kind.DISPATCHER, "lakelog-queues"),
    "hash-index": (Kind.DISPATCHER, "lakelog-hash-index"),
    "retention": (Kind.CLEANER, "lakelog-retention"),
    "psutil": (Kind.DISK_WATCHER, "lakelog-retention"),
    "maintenance": (Kind.STORE_MAINTENANCE, "lakelog-retention"),
    "sharing": (Kind.STORE_SHARING, "lakelog-processes"),
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
    offered = {each: found for each, (found, _) in FIRST_PARTY.items()} | dict(installed)
    names = sorted(each for each, found in installed.items() if found is kind)
    there = f"; installed are {', '.join(names)}" if names else "; none is installed"
    if offered.get(name, kind) is not kind:
        found = kind_text(offered[name])
        return MissingPlugin(f"{name!r} is a {found}, and a {kind_text(kind)} is wanted{there}")
    package = FIRST_PARTY[name][1] if name in FIRST_PARTY else None
    what = f"no {kind_text(kind)} {name!r} is installed"
    for source in off.values():
        if _brings(source, name, package):
            why = f"the plugin {source.name!r} is switched off; remove it from what disables it"
            return MissingPlugin(f"{what}: {why}")
    for source in left_out:
        if _brings(source, name, package):
            return MissingPlugin(
                f"the {kind_text(kind)} {name!r} is installed ({source.distribution or source.name}"
                "), but plugins=[...] is used instead of installed plugins: add it there"
            )
    if package:
        return MissingPlugin(f"{what}: pip install {package}")
    meant = nearest(name, sorted(each for each, found in offered.items() if found is kind))
    if not meant:
        return MissingPlugin(f"{what}{there}")
    remedy = "" if meant in installed else f" (pip install {FIRST_PARTY[meant][1]})"
    return MissingPlugin(f"{what}{there}; did you mean {meant!r}{remedy}?")


def _brings(source: PluginSource, name: str, package: str | None) -> bool:
    """Whether a plugin provides the strategy ``name``, judged by its name or its package."""
    found = source.distribution
    return source.name == name or (found is not None and found.name == package)


def suggestion(name: str, known: Iterable[str], lead: str) -> str:
    """The end of an error message: the nearest known name, or all names after ``lead``.

    >>> suggestion("mmmap", ["file", "mmap"], "there are")
    "; did you mean 'mmap'?"
    >>> suggestion("s3", ["file", "mmap"], "there are")
    '; there are file, mmap'
    """
    names = sorted(known)
    meant = nearest(name, names)
    return f"; did you mean {meant!r}?" if meant else f"; {lead} {', '.join(names) or 'none'}"


def kind_text(kind: Kind) -> str:
    """The name of a kind in a sentence.

    >>> kind_text(Kind.FLUSH_STRATEGY)
    'flush strategy'
    """
    return kind.name.lower().replace("_", " ")
