"""Settings formats: they read the settings files of other systems."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import attrs


@attrs.frozen
class TranslatedValue:
    """One lakelog setting, translated from a file of another system.

    :ivar target: lakelog's dotted key
    :ivar value: its value, not yet validated
    :ivar keys: the keys of the file from which it was translated
    """

    target: str
    value: object
    keys: tuple[str, ...]


@attrs.frozen
class Translation:
    """The translation of a file of another system.

    :ivar values: the settings in it; a key that no installed plugin has is reported
    :ivar unused: its keys that set nothing, with the reason
    """

    values: tuple[TranslatedValue, ...] = ()
    unused: Mapping[str, str] = attrs.field(factory=dict)


class SettingsFormat(Protocol):
    """Reads settings files of another system, for one store."""

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Suffixes of such files: lower case, with the dot, and never ``.toml``."""

    def read(self, data: bytes, origin: str) -> Translation:
        """Translate a file.

        :param data: the whole file
        :param origin: its name, for errors

        Raises :class:`~lakelog.errors.SettingsError` for invalid content, with ``origin`` as its
        source, and the key in the file. A key without a counterpart is not an error.
        """

    def translate_key(self, key: str) -> str | None:
        """Lakelog's dotted key for a key of the other system, if any; used only for errors."""
