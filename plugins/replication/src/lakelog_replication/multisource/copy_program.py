"""The program that copies one of several masters: ``lakelog replicate`` with the same settings."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any, Final

from lakelog.errors import SettingsError
from lakelog.format.layout import OWN_DIR
from lakelog_daemon.arguments import lakelog
from lakelog_daemon.plan import ServePlan, Spec
from lakelog_replication.multisource.source import SourceMaster

_SECTION: Final = "rocketmq-ha"
_STORE_ID: Final = "--store-id"
_COMMIT_LOCK: Final = "--commit-lock"
_ENGINES: Final = {"--engine", "--processes", "--master", "--conf"}
_ONE_PROCESS: Final = ("--engine", "processes", "--processes", "1")
"""The default for landing: a Spark session or a process pool per master would fill the memory."""
_REPLACED: Final = {
    *(f"{_SECTION}.{key}" for key in ("role", "master", "broker", "masters", "name_servers")),
    *("serve.services", "lake.options"),
}
"""Settings of the folder that a copy does not take over."""


def copy_spec(plan: ServePlan, master: SourceMaster) -> Spec:
    """Return the program that copies ``master`` into the folder of the master's name.

    The name is also the store id in tables, so a copy that starts anew lands no row twice. Raises
    :class:`~lakelog.errors.SettingsError`.
    """
    words = ["replicate", str(plan.path / master.name), "--from", str(master.slaves)]
    if master.broker is not None:
        words += ["--broker", str(master.broker)]
    settings = {f"{_SECTION}.masters": (), f"{_SECTION}.name_servers": (), **dict(_chosen(plan))}
    if "lake" in plan.opening.settings.core.followers:
        settings["lake.options"] = (*_lake_options(plan), _STORE_ID, master.name)
    sets = list[str]()
    for key, value in settings.items():
        written = json.dumps(value, ensure_ascii=False, default=os.fspath)
        sets += ["--set", f"{key}={written}"]
    return Spec(master.name, "service", lakelog(0, *words), json.dumps(sets))


def _chosen(plan: ServePlan) -> Iterator[tuple[str, Any]]:
    """The explicit settings of any source; each copy has its own defaults and inferred values."""
    settings = plan.opening.settings
    for key, (_, _, value) in settings.values().items():
        if value is not None and settings.is_chosen(key) and key not in _REPLACED:
            yield key, value


def _lake_options(plan: ServePlan) -> tuple[str, ...]:
    """The options of landing.

    Copies commit in turns, and each lands in one process without Spark unless an engine is given.
    Raises :class:`~lakelog.errors.SettingsError`.
    """
    settings = plan.opening.settings.section("lake")
    options: tuple[str, ...] = settings.options
    given = {each.partition("=")[0] for each in options}
    if _STORE_ID in given:
        raise SettingsError(
            f"{_STORE_ID} is the name of the master, for each of several", key="lake.options"
        )
    if _COMMIT_LOCK not in given:
        options = (*options, _COMMIT_LOCK, str(plan.path / OWN_DIR / "commits.lock"))
    if given & _ENGINES or settings.to.startswith("spark:"):
        return options
    return (*options, *_ONE_PROCESS)
