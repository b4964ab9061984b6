"""The kinds of plugins with a template, and the values of the variables in its texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from lakelog.interfaces import PROTOCOLS, Kind
from lakelog.registry.missing import kind_text


@attrs.frozen
class PluginTemplate:
    """The template of one kind.

    :ivar kind: the kind of its strategy
    :ivar strategy: the class of the strategy in the texts
    :ivar summary: the purpose of the strategy, in a few words
    :ivar use: a line of Python or of a shell that uses it
    """

    kind: Kind
    strategy: str
    summary: str
    use: str

    @property
    def word(self) -> str:
        """The kind as ``--kind`` takes it, such as ``flush-strategy``."""
        return self.kind.name.lower().replace("_", "-")

    @property
    def folder(self) -> str:
        """The folder of its texts."""
        return self.kind.name.lower()

    def values(self, name: str) -> Mapping[str, str]:
        """The values of the variables in the texts, for a strategy ``name``."""
        protocol = PROTOCOLS[self.kind].__name__
        return {
            "name": name,
            "kind": self.kind.name,
            "spoken": kind_text(self.kind),
            "hook": self.kind.value,
            "protocol": protocol,
            "contract": f"{protocol}Contract",
            "imports": ", ".join(sorted({"Context", "Factory", "Kind", protocol})),
            "strategy": self.strategy,
            "settings": f"{self.strategy}Settings",
            "summary": self.summary,
            "use": self.use.format(name=name),
        }


_ALL: Final = (
    PluginTemplate(
        Kind.APPEND_CALLBACK,
        "Label",
        "adds a property to every message",
        '>>> store = lakelog.open("events", append="{name}")',
    ),
    PluginTemplate(
        Kind.WRITER,
        "PiecesWriter",
        "writes long data in pieces",
        '>>> store = lakelog.open("events", writer="{name}")',
    ),
    PluginTemplate(
        Kind.FLUSH_STRATEGY,
        "EveryN",
        "durable once per so many appends",
        '>>> store = lakelog.open("events", flush="{name}")',
    ),
    PluginTemplate(
        Kind.REPLICATOR,
        "Confirmed",
        "waits until another program has copied the bytes",
        '>>> store = lakelog.open("events", replicator="{name}")',
    ),
    PluginTemplate(
        Kind.DISPATCHER,
        "TopicTable",
        "keeps a table of topics in SQLite",
        '>>> store = lakelog.open("events", dispatchers=["consume-queue", "{name}"])',
    ),
    PluginTemplate(
        Kind.FOLLOWER,
        "Totals",
        "counts messages by topic",
        "lakelog serve events --set 'followers=[\"{name}\"]'",
    ),
    PluginTemplate(
        Kind.CLEANER,
        "Newest",
        "keeps the newest segments",
        '>>> store = lakelog.open("events", cleaner="{name}")',
    ),
    PluginTemplate(
        Kind.DISK_WATCHER,
        "FreeSpace",
        "judges disks by their free bytes",
        '>>> store = lakelog.open("events", disk_watcher="{name}")',
    ),
    PluginTemplate(
        Kind.SEGMENT_SOURCE,
        "SegmentFolder",
        "serves deleted segments from a folder",
        '>>> store = lakelog.open("events", archive="{name}")',
    ),
)

TEMPLATES: Final = {each.word: each for each in _ALL}
"""By the word that ``--kind`` takes."""

OTHER_KINDS: Final = sorted(
    kind.name.lower().replace("_", "-") for kind in Kind if kind not in {t.kind for t in _ALL}
)
"""Kinds without a template: lakelog itself has nearly all strategies of these kinds."""
