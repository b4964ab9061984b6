"""The program that copies one of several masters: ``lakelog replicate`` with the same settings."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any, Final

from lakelog.errors import SettingsError
from lakelog_daemon.plan import ServePlan, Spec
from lakelog_replication.multisource.source import SourceMaster

_SECTION: Final = "rocketmq-ha"
_STORE_ID: Final = "--store-id"
_REPLACED: Final = {
    *(f"{_SECTION}.{key}" for key in ("role", "master", "broker", "masters", "name_servers")),
    *("serve.services", "lake.options"),
}
"""Settings of the folder that a copy does not take over."""


def copy_spec(plan: ServePlan, master: SourceMaster) -> Spec:
    """The program for ``master``, whose store is the folder of its name.

    Tables know the store by that name, so that a copy that is begun anew lands nothing twice.
    Raises :class:`~lakelog.errors.SettingsError`.
    """
    words = [sys.executable, "-m", "lakelog", "replicate", str(plan.path / master.name)]
    words += ["--from", str(master.slaves)]
    if master.broker is not None:
        words += ["--broker", str(master.broker)]
    settings = {f"{_SECTION}.masters": (), f"{_SECTION}.name_servers": (), **dict(_chosen(plan))}
    if "lake" in plan.opening.settings.core.followers:
        settings["lake.options"] = (*_lake_options(plan), _STORE_ID, master.name)
    for key, value in settings.items():
        written = json.dumps(value, ensure_ascii=False, default=os.fspath)
        words += ["--set", f"{key}={written}"]
    return Spec(master.name, "service", tuple(words))


def _chosen(plan: ServePlan) -> Iterator[tuple[str, Any]]:
    """What was set, wherever; defaults and what was inferred from files are the copy's own."""
    settings = plan.opening.settings
    for key, (_, _, value) in settings.values().items():
        if value is not None and settings.is_chosen(key) and key not in _REPLACED:
            yield key, value


def _lake_options(plan: ServePlan) -> tuple[str, ...]:
    options: tuple[str, ...] = plan.opening.settings.section("lake").options
    if any(each.partition("=")[0] == _STORE_ID for each in options):
        raise SettingsError(
            f"{_STORE_ID} is the name of the master, for each of several", key="lake.options"
        )
    return options
