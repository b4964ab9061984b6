"""The kinds of plugins with a template, and the values of the variables in its texts."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
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
    :ivar replaces: the plugin of lakelog whose strategy it extends, and which must be switched off;
        empty if it needs none
    :ivar kept: hooks of that plugin for its other strategies, which the new plugin offers again
    """

    kind: Kind
    strategy: str
    summary: str
    use: str
    replaces: str = ""
    kept: tuple[str, ...] = ()

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
        protocol, words = PROTOCOLS[self.kind].__name__, kind_text(self.kind)
        return {
            "name": name,
            "kind": self.kind.name,
            "spoken": words,
            "titled": f"{'An' if words[0] in 'aeiou' else 'A'} {words}",
            "hook": self.kind.value,
            "protocol": protocol,
            "contract": f"{protocol}Contract",
            "imports": ", ".join(sorted({"Context", "Factory", "Kind", protocol})),
            "strategy": self.strategy,
            "settings": f"{self.strategy}Settings",
            "summary": self.summary,
            "use": self.use.format(name=name),
            **self._replacing(),
        }

    def _replacing(self) -> Mapping[str, str]:
        """Variables of a template that replaces a plugin; empty texts for any other."""
        if not self.replaces:
            return dict.fromkeys(("needs", "kept", "instead"), "")
        module = f"lakelog_{self.replaces}.plugin"
        kept = [f"from {module} import {each} as {each}\n" for each in self.kept]
        note = ["\n# Other strategies of the plugin that this one replaces:\n"] if kept else []
        return {
            "needs": f', "lakelog-{self.replaces}=={version("lakelog-tools")}"',
            "kept": "".join(note + kept),
            "instead": f"    export LAKELOG_DISABLE_PLUGINS={self.replaces}  # it is replaced\n",
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
    PluginTemplate(
        Kind.ACCELERATOR,
        "ShortCalls",
        "leaves long batches to Python, so that other threads run",
        '>>> store = lakelog.open("events", accelerator="{name}")',
        replaces="native",
    ),
    PluginTemplate(
        Kind.SETTINGS_FORMAT,
        "IniFile",
        "reads settings from INI files",
        '>>> store = lakelog.open("events", settings="events.ini")',
    ),
    PluginTemplate(
        Kind.STORE_EXTENSION,
        "Counting",
        "adds a method that counts the messages of a topic",
        '>>> lakelog.open("events").count("orders")',
        replaces="queues",
        kept=("lakelog_dispatchers",),
    ),
    PluginTemplate(
        Kind.STORE_MAINTENANCE,
        "AtLeast",
        "keeps some segments whatever the cleaner chooses",
        '>>> store = lakelog.open("events", cleaner="retention")',
        replaces="retention",
        kept=("lakelog_cleaners", "lakelog_disk_watchers"),
    ),
    PluginTemplate(
        Kind.STORE_SHARING,
        "LoggedSharing",
        "logs how each process opens a store",
        '>>> store = lakelog.open("events")',
        replaces="processes",
    ),
)

TEMPLATES: Final = {each.word: each for each in _ALL}
"""By the word that ``--kind`` takes."""
