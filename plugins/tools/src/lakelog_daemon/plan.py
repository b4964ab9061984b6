"""The configuration of a ``serve``: settings, services and command line, validated before start."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Literal

import attrs

from lakelog import Store
from lakelog.errors import SettingsError
from lakelog.hooks import Kind
from lakelog.settings.effective import SERVE, ServeSettings
from lakelog.store.open import Opening, open_to_serve, prepare

STORE: Final = "{store}"
"""Placeholder for the store directory in a command."""
FOLLOWER_PROGRAM: Final = "lakelog_daemon.follower"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,49}")
_OURSELVES: Final = "lakelog"


@attrs.frozen
class Spec:
    """A service to run.

    :ivar kind: ``service`` for a command, ``follower`` for a follower of the settings
    :ivar command: the program and its arguments
    :ivar stdin: its standard input: arguments that may be secrets
    """

    name: str
    kind: Literal["service", "follower"]
    command: tuple[str, ...] = attrs.field(repr=False)
    stdin: str = attrs.field(default="", repr=False)


def parse(text: str, store: Path, source: str) -> Spec:
    """Parse ``NAME=COMMAND``; raises :class:`~lakelog.errors.SettingsError`.

    The command is split like a shell command. ``{store}`` in it is the store directory. The program
    ``lakelog`` is always the running installation, whatever ``PATH`` contains.

    >>> parse("eye=lakelog stats {store}", Path("/s"), "--service").command[1:]
    ('-m', 'lakelog', 'stats', '/s')
    """
    name, equals, command = text.partition("=")
    if not equals or not _NAME.fullmatch(name):
        what = f"{text!r} is not NAME=COMMAND (a name has letters, digits, '.', '_' and '-')"
        raise SettingsError(what, source=source)
    try:
        words = [word.replace(STORE, str(store)) for word in shlex.split(command)]
    except ValueError as error:
        raise SettingsError(f"the command of {name!r}: {error}", source=source) from None
    return Spec(name, "service", _program(name, words, source))


def _program(name: str, words: Sequence[str], source: str) -> tuple[str, ...]:
    if not words:
        raise SettingsError(f"service {name!r} has no command", source=source)
    if words[0] == _OURSELVES:
        return (sys.executable, "-m", _OURSELVES, *words[1:])
    if shutil.which(words[0]) is None:
        what = f"service {name!r}: no program {words[0]!r} is here that may be run"
        raise SettingsError(what, source=source)
    return tuple(words)


def follower(name: str, path: Path, given: Mapping[str, Any]) -> Spec:
    """The follower ``name`` of the settings, as a separate program.

    :param given: arguments with which the store was opened; the program opens it with the same
    """
    told = json.dumps(dict(given), default=os.fspath)
    return Spec(name, "follower", (sys.executable, "-m", FOLLOWER_PROGRAM, str(path), name), told)


def landing(to: str | None, table: str | None) -> dict[str, Any]:
    """The settings that land a store in tables while it is served; none without ``to``.

    :param to: ``KIND:PATH``
    :param table: ``NAMESPACE.TABLE``

    Raises :class:`~lakelog.errors.SettingsError`.
    """
    if not to:
        if table:
            raise SettingsError("it needs --to", key="--table")
        return {}
    if find_spec("lakelog_lake") is None:
        raise SettingsError("it needs `pip install 'lakelog[lakehouse]'`", key="--to")
    more = {"lake.options": ["--table", table]} if table else {}
    return {"followers": ["lake"], "lake.to": to, **more}


def check_names(specs: Iterable[Spec]) -> tuple[Spec, ...]:
    """Return ``specs``; raises :class:`~lakelog.errors.SettingsError` if a name repeats."""
    found: dict[str, Spec] = {}
    for each in specs:
        if each.name in found:
            raise SettingsError(f"two services are called {each.name!r}; give each its own name")
        found[each.name] = each
    return tuple(found.values())


@attrs.frozen
class ServePlan:
    """A store to serve.

    :ivar services: the programs to run beside it
    :ivar settings: the section ``serve``
    :ivar opening: plugins and settings
    """

    path: Path
    commitlog: Path
    services: tuple[Spec, ...]
    settings: ServeSettings
    opening: Opening
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
        opening = prepare(place, arguments=arguments, **given)
        effective = opening.settings
        followers = _followers(opening, given | {"arguments": arguments})
        log = effective.core.commitlog(place)
        configured = effective.section(SERVE)
        commands = [
            *(parse(text, place, "serve.services") for text in configured.services),
            *(parse(text, place, "--service") for text in services),
        ]
        specs = check_names((*followers, *commands))
        return cls(place, log, specs, configured, opening, given, arguments)

    def open(self) -> Store:
        """Open the store with its services; raises like :func:`.open_to_serve`."""
        return open_to_serve(self.path, **self._given, arguments=self._arguments)


def _followers(opening: Opening, given: Mapping[str, Any]) -> list[Spec]:
    names = opening.settings.core.followers
    for each in names:
        opening.registry.factory(Kind.FOLLOWER, each)
        opening.settings.section(each)
    return [follower(each, opening.path, given) for each in names]


def _absolute(file: Path | None) -> Path | None:
    return None if file is None else Path(os.path.abspath(file))
