"""The status of a folder of copies, in ``lakelog/serve.json`` of the folder.

The fields are those of :mod:`lakelog_daemon.status` that do not concern a single store, and::

    masters        {name: {"slaves": HOST:PORT, "broker": HOST:PORT or null, "listed": whether a
                   name server lists it now}}
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from lakelog_daemon.processes import Usage
from lakelog_daemon.status import VERSION, disks, now_ms, writer
from lakelog_replication.multisource.source import SourceMaster


@attrs.define
class FolderStatus:
    """Builds statuses; CPU times cover the time since the last status.

    :ivar dropped: returns the number of dropped log lines
    """

    path: Path
    dropped: Callable[[], int]
    _started_ms: int = attrs.field(factory=now_ms, init=False)
    _usage: Usage = attrs.field(factory=Usage, init=False)

    def status(
        self,
        state: str,
        rows: Sequence[Mapping[str, Any]],
        masters: Iterable[SourceMaster],
        listed: Collection[str],
    ) -> dict[str, Any]:
        """The status, as described in this module.

        :param state: the daemon's state, as in :mod:`lakelog_daemon.status`
        :param rows: the supervisor's rows, one for each program
        :param masters: all masters that are copied
        :param listed: names of the masters that name servers list
        """
        problems = unhealthy(rows)
        return {
            "version": VERSION,
            "path": str(self.path),
            **writer(),
            "started_ms": self._started_ms,
            "heartbeat_ms": now_ms(),
            "state": state,
            "health": "degraded" if problems else "ok",
            "problems": problems,
            "masters": {
                each.name: {
                    "slaves": str(each.slaves),
                    "broker": None if each.broker is None else str(each.broker),
                    "listed": each.name in listed,
                }
                for each in masters
            },
            "disks": disks(self.path, self.path),
            "processes": self._usage.rows(os.getpid(), rows),
            "log_lines_dropped": self.dropped(),
        }


def unhealthy(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """One text for each program that is restarting or hanging."""
    return [
        f"the copy of {row['name']} is {row['health']} ({row['last_exit']})"
        for row in rows
        if row["health"] in ("restarting", "hanging")
    ]
