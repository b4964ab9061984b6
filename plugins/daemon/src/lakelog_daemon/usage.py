"""CPU time and memory used by the processes of a ``serve``."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from lakelog_daemon.procstat import ProcStat, children, command_of, look_at, with_children


@attrs.define
class Usage:
    """Computes usage since the last call."""

    _former: dict[tuple[int, int], tuple[float, float]] = attrs.field(factory=dict, init=False)

    def rows(self, owner_pid: int, services: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The owner, its services with their descendants, and its other children.

        :param services: rows with a ``pid``, which may be ``None``
        """
        now, seen = time.monotonic(), dict[tuple[int, int], tuple[float, float]]()

        def used(found: ProcStat | None) -> dict[str, Any]:
            if found is None:
                return {"cpu_percent": None, "rss_bytes": None}
            key = (found.pid, found.start_ticks)
            seen[key] = (now, found.cpu_seconds)
            return {
                "cpu_percent": _percent(self._former.get(key), now, found.cpu_seconds),
                "rss_bytes": found.rss_bytes,
            }

        listed = list(services)
        rows = [_plain("owner", owner_pid) | used(look_at(owner_pid))]
        rows += [{**row, **used(_tree(row["pid"]))} for row in listed]
        others = set(children(owner_pid)) - {row["pid"] for row in listed}
        for found in filter(None, map(with_children, sorted(others))):
            rows.append(_plain("child", found.pid, _name(found)) | used(found))
        self._former = seen
        return rows


def _tree(pid: int | None) -> ProcStat | None:
    return None if pid is None else with_children(pid)


def _plain(kind: str, pid: int, name: str | None = None) -> dict[str, Any]:
    return {"name": name or kind, "kind": kind, "pid": pid, "state": "running", "health": "ok"}


def _name(found: ProcStat) -> str:
    """The module name of a Python module, else the program name."""
    words = command_of(found.pid)
    module = words[words.index("-m") + 1 :] if "-m" in words else ()
    return module[0].rpartition(".")[2] if module else found.name


def _percent(former: tuple[float, float] | None, now: float, cpu_seconds: float) -> float | None:
    """Percentage of one core; not negative, since an ended child takes its CPU time away."""
    if former is None or now <= former[0]:
        return None
    return round(max(0.0, (cpu_seconds - former[1]) / (now - former[0]) * 100), 2)
