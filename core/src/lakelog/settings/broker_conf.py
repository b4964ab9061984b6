"""Values from RocketMQ's ``broker.conf``; unsupported keys are reported, never rejected."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

import attrs

from lakelog.errors import SettingsError
from lakelog.settings.catalog import Catalog
from lakelog.settings.given import CORE, Given, Layer
from lakelog.settings.properties import parse_properties
from lakelog.settings.rocketmq import NOTES, TABLE
from lakelog.settings.rocketmq_combined import (
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
from lakelog.settings.tomlfile import read_bytes
from lakelog.settings.unknown import no_section

T = TypeVar("T")


@attrs.frozen
class Translated:
    """One value for lakelog, and the RocketMQ keys that it comes from."""

    keys: tuple[str, ...]
    given: Given


def from_broker_conf(file: Path, path: Path, catalog: Catalog) -> Layer:
    """The settings of a ``broker.conf`` for the store in ``path``."""
    origin = str(file)
    properties = parse_properties(read_bytes(file, origin), origin)
    texts = {key: found.value for key, found in properties.items()}
    translated = [*_from_table(texts, origin), *_from_combined(texts, path, origin)]
    homeless = [one for one in translated if not catalog.knows(one.given)]
    notes = _unmapped(texts) | path_notes(texts, path)
    notes |= {key: _no_target(one.given, catalog) for one in homeless for key in one.keys}
    return Layer(
        tuple(one.given for one in translated if one not in homeless),
        {key: f"{origin}: {note}" for key, note in notes.items()},
    )


def _from_table(texts: Mapping[str, str], origin: str) -> Iterator[Translated]:
    for key in (key for key in TABLE if key in texts):
        value = _asked(partial(TABLE[key].convert, texts[key]), key, origin)
        if value is not None:
            yield _translated(TABLE[key].target, value, (key,), origin)


def _from_combined(texts: Mapping[str, str], path: Path, origin: str) -> Iterator[Translated]:
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
            yield _translated(target, outcome.value, outcome.keys, origin)


def _asked(question: Callable[[], T], key: str, origin: str) -> T:
    try:
        return question()
    except ValueError as error:
        raise SettingsError(str(error), key=key, source=origin) from error


def _translated(target: str, value: object, keys: tuple[str, ...], origin: str) -> Translated:
    section, _, key = target.rpartition(".")
    return Translated(keys, Given(section or CORE, key, value, f"{origin} ({', '.join(keys)})"))


def _unmapped(texts: Mapping[str, str]) -> dict[str, str]:
    """Notes on keys that are in no table, or whose value is not supported."""
    notes = {}
    for key, text in texts.items():
        harmless, note = NOTES.get(key, ("", "it has no meaning here"))
        if key not in TABLE and key not in COMBINED and text.strip() != harmless:
            notes[key] = note
    return notes


def _no_target(given: Given, catalog: Catalog) -> str:
    if given.section in catalog.classes:
        return f"{given.dotted} is not a setting of the plugin that is installed"
    return f"{given.dotted}: {no_section(given.section, catalog)}"
