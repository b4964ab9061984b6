"""Values from RocketMQ's ``broker.conf``; unsupported keys are reported, never rejected."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

import attrs

from lakelog.errors import SettingsError
from lakelog.interfaces import TranslatedValue, Translation
from lakelog_rocketmq.combined_keys import (
    COMBINED,
    COMMITLOG,
    DISK,
    HOST,
    LIGHT,
    ROLE,
    Outcome,
    commitlog_path,
    disk_line,
    light_queues,
    path_notes,
    replica,
    store_host,
)
from lakelog_rocketmq.java_properties import parse_properties
from lakelog_rocketmq.keys import NOTES, TABLE

T = TypeVar("T")


@attrs.frozen
class BrokerConf:
    """Reads ``broker.conf`` for the store in ``path``."""

    path: Path
    suffixes: tuple[str, ...] = (".conf", ".properties")

    def read(self, data: bytes, origin: str) -> Translation:
        """Translate the settings in a file's bytes.

        :param origin: the file, for errors
        Raises :class:`~lakelog.errors.SettingsError` for a value that cannot be converted.
        """
        properties = parse_properties(data, origin)
        texts = {key: found.value for key, found in properties.items()}
        values = [*_from_table(texts, origin), *_from_combined(texts, self.path, origin)]
        return Translation(tuple(values), _unmapped(texts) | path_notes(texts, self.path))

    def translate_key(self, key: str) -> str | None:
        """Lakelog's key for one of RocketMQ's keys; ``None`` if it has none."""
        rule = TABLE.get(key)
        return rule.target if rule else None


def _from_table(texts: Mapping[str, str], origin: str) -> Iterator[TranslatedValue]:
    for key in (key for key in TABLE if key in texts):
        value = _asked(partial(TABLE[key].convert, texts[key]), key, origin)
        if value is not None:
            yield TranslatedValue(TABLE[key].target, value, (key,))


def _from_combined(texts: Mapping[str, str], path: Path, origin: str) -> Iterator[TranslatedValue]:
    questions: dict[str, tuple[str, Callable[[], Outcome | None]]] = {
        "light_queues": (", ".join(LIGHT), lambda: light_queues(texts)),
        "store_host": (", ".join(HOST), lambda: store_host(texts)),
        "staged.replica": (ROLE[0], lambda: replica(texts)),
        "commitlog_path": (COMMITLOG, lambda: commitlog_path(texts, path)),
        **{
            f"psutil.{line}": (row[0], partial(disk_line, texts, line))
            # so that an invalid value is reported under its own name
            for line, row in reversed(DISK.items())
        },
    }
    for target, (names, question) in questions.items():
        outcome = _asked(question, names, origin)
        if outcome is not None:
            yield TranslatedValue(target, outcome.value, outcome.keys)


def _asked(question: Callable[[], T], key: str, origin: str) -> T:
    try:
        return question()
    except ValueError as error:
        raise SettingsError(str(error), key=key, source=origin) from error


def _unmapped(texts: Mapping[str, str]) -> dict[str, str]:
    """Notes on keys that are in no table, or whose value is not supported."""
    notes = {}
    for key, text in texts.items():
        harmless, note = NOTES.get(key, ("", "it has no meaning here"))
        if key not in TABLE and key not in COMBINED and text.strip() != harmless:
            notes[key] = note
    return notes
