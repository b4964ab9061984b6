"""The configuration of a ``serve``: settings and command line, validated before anything starts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs

from lakelog import Store
from lakelog.interfaces import Kind
from lakelog.settings.catalog import SERVE
from lakelog.settings.model import ServeSettings
from lakelog.store.open import Opening, open_to_serve, prepare
from lakelog_daemon.specs import Spec, check_names, follower, parse


@attrs.frozen
class ServePlan:
    """A store to serve.

    :ivar services: the programs to run beside it
    :ivar settings: the section ``serve``
    """

    path: Path
    commitlog: Path
    services: tuple[Spec, ...]
    settings: ServeSettings
    _given: Mapping[str, Any]
    _arguments: Mapping[str, Any]

    @classmethod
    def make(
        cls,
        path: Path,
        *,
        services: Iterable[str] = (),
        settings: Path | None = None,
        broker_conf: Path | None = None,
        arguments: Mapping[str, Any],
    ) -> ServePlan:
        """Resolve plugins, settings and programs; touches no file of the store.

        :param services: further ``NAME=COMMAND``
        :param arguments: single settings, by dotted key

        Raises :class:`~lakelog.errors.SettingsError` and :class:`~lakelog.errors.PluginError`.
        """
        place = path.absolute()
        given: dict[str, Any] = {
            "settings": _absolute(settings),
            "broker_conf": _absolute(broker_conf),
        }
        opening = prepare(
            place, plugins=None, files=None, tolerate_missing=False, arguments=arguments, **given
        )
        return cls(
            place,
            opening.settings.core.commitlog(place),
            check_names(
                (
                    *_followers(opening, given | {"arguments": arguments}),
                    *_commands(opening, services),
                )
            ),
            opening.settings.section(SERVE),
            given,
            arguments,
        )

    def open(self) -> Store:
        """Open the store with its services; raises like :func:`.open_to_serve`."""
        return open_to_serve(self.path, **self._given, arguments=self._arguments)


def _followers(opening: Opening, given: Mapping[str, Any]) -> list[Spec]:
    names = opening.settings.core.followers
    for each in names:
        opening.registry.factory(Kind.FOLLOWER, each)
        opening.settings.section(each)
    return [follower(each, opening.path, given) for each in names]


def _commands(opening: Opening, services: Iterable[str]) -> list[Spec]:
    configured = opening.settings.section(SERVE).services
    return [
        *(parse(text, opening.path, "serve.services") for text in configured),
        *(parse(text, opening.path, "--service") for text in services),
    ]


def _absolute(file: Path | None) -> Path | None:
    return None if file is None else Path(os.path.abspath(file))
