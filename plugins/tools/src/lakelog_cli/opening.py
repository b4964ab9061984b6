"""Opens a store for a command, with the settings from its options.

The error for a name that the store does not have, with suggestions from the existing names.
"""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable, Collection, Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import typer

from lakelog import Store
from lakelog.errors import LakelogError, SettingsError
from lakelog.store.open import known_mode, open_store
from lakelog_cli.output import shown


def open_for(
    mode: str,
    path: Path,
    broker_conf: Path | None,
    settings: Path | None,
    assignments: Iterable[str] | None,
    *,
    notes: bool = True,
) -> Store:
    """Open the store in ``path``; settings without effect are reported on stderr.

    :param notes: whether to report them
    """
    store = open_store(
        path,
        mode=known_mode(mode),
        settings=settings,
        broker_conf=broker_conf,
        **dict(map(assignment, assignments or ())),
    )
    for key, why in sorted(store.settings.unused.items()) if notes else ():
        typer.echo(f"note: {key} is not used: {why}", err=True)
    return store


def open_to_change(
    path: Path,
    broker_conf: Path | None,
    settings: Path | None,
    assignments: Iterable[str] | None,
) -> Store:
    """Open an existing store for writing; raises ``NotAStore``, and creates none."""
    open_for("read", path, broker_conf, settings, assignments).close()
    return open_for("write", path, broker_conf, settings, assignments, notes=False)


def assignment(text: str) -> tuple[str, Any]:
    """Parse ``KEY=VALUE``; raises :class:`~lakelog.errors.SettingsError`.

    >>> assignment("timed.flush_interval_ms=500"), assignment("flush=inline")
    (('timed.flush_interval_ms', 500), ('flush', 'inline'))
    """
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise SettingsError(f"--set {text} is not KEY=VALUE")
    if any(key in inspect.signature(taker).parameters for taker in _takers()):
        raise SettingsError("this is no setting", key=key, source="--set")
    return key, _value(value)


def _takers() -> Iterable[Callable[..., Any]]:
    from lakelog_doctor.rebuild import rebuild
    from lakelog_doctor.recover import recover
    from lakelog_doctor.repair import repair  # of few commands: a server need not import them

    return open_store, rebuild, recover, repair


def _value(text: str) -> Any:
    """Parse a value as TOML, or else as a plain string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


_NAMED: Final = 5
"""Number of existing names in a message."""


class UnknownName(LakelogError):
    """The store has no topic, queue or group of that name; wrong usage."""


def check_name(kind: str, name: str, known: Collection[str]) -> None:
    """Raise :class:`UnknownName` unless ``name`` is in ``known``.

    :param kind: kind of the name, such as ``topic``
    """
    if name in known:
        return
    near = get_close_matches(name, known, 1)
    if near:
        raise UnknownName(f"no {kind} {_quoted(name)} is here; do you mean {_quoted(near[0])}?")
    raise UnknownName(f"no {kind} {_quoted(name)} is here; {_listed(kind, known)}")


def check_queue(store: Store, topic: str, queue_id: int) -> None:
    """Raise :class:`UnknownName` unless the store has the queue."""
    if store.queue_bounds(topic, queue_id) is None:
        check_name("topic", topic, store.topics())
        ids = [str(each.queue_id) for each in store.queues(topic)]
        check_name(f"queue of topic {_quoted(topic)}", str(queue_id), ids)


def _listed(kind: str, known: Collection[str]) -> str:
    if not known:
        return f"there is no {kind} at all"
    names = ", ".join(map(_quoted, list(known)[:_NAMED]))
    return f"there is {names}{' and more' if len(known) > _NAMED else ''}"


def _quoted(name: str) -> str:
    return f"'{shown(name)}'"
