"""Implements the sharing of stores: the calls that the core makes.

Only locks decide whether a process is alone. The loser of a race joins the winner after the
winner's recovery.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from lakelog.errors import AttachRefused, StoreLocked
from lakelog.files.shared.membership import Membership
from lakelog.files.shared.ownership import is_owned
from lakelog.settings.catalog import ATTACH
from lakelog.store.roles.managing import Managing
from lakelog.store.roles.opening import NO_WRITING
from lakelog.store.roles.ownerparts import owner_parts
from lakelog.store.roles.parts import RoleParts
from lakelog.store.roles.prepared import OpenRequest
from lakelog_processes.asking import Answering
from lakelog_processes.joining import JoinedLog
from lakelog_processes.shared_settings import shared_settings

_LOOK_S: Final = 0.01


class ProcessSharing:
    """Lets the processes of a host have a store open for writing at the same time."""

    def settings(self, request: OpenRequest) -> Mapping[str, Any]:
        """The settings that joining processes must use, for the shared page."""
        return shared_settings(request.registry, request.settings)

    def answering(self, request: OpenRequest, manager: Managing) -> Answering:
        """Build the server of the requests of other processes."""
        return Answering(request.files, request.path, manager)

    def write(self, request: OpenRequest) -> RoleParts:
        """Join the processes that have the store open, or take it over if there are none.

        While other processes open or close the store, this tries again.
        """
        end = time.monotonic() + _timeout_s(request)
        while True:
            last = time.monotonic() >= end
            found = _beside_others(request) if is_owned(request.files, request.path) else None
            if found is not None:
                return found
            try:  # no process has it open, or the last one has just left
                return _first(request)
            except StoreLocked:  # another process was faster
                if last:
                    raise
            time.sleep(_LOOK_S)

    def serve(self, request: OpenRequest) -> RoleParts:
        """Take the services and keep them, after requesting them from their present owner."""
        try:
            return owner_parts(request, replica=None)
        except StoreLocked:
            joined = _joined(request)
            if joined is None:
                raise
            return joined.serve()


def _first(request: OpenRequest) -> RoleParts:
    """Take over the directory, and let other processes join."""
    parts = owner_parts(request)
    if parts.owned is not None and not parts.owned.lock.is_alone:
        parts.joined = joined = JoinedLog(request, parts.owned)
        joined.has(parts)
    return parts


def _beside_others(request: OpenRequest) -> RoleParts | None:
    """Build parts to append beside other processes; ``None`` if there are none."""
    try:
        joined = _joined(request)
        if joined is None:
            return None
        try:
            return joined.parts()
        except BaseException:  # Ctrl-C too
            joined.close()
            raise
    except OSError as error:
        if error.errno not in NO_WRITING:
            raise
        raise AttachRefused(
            "its files belong to another user; open it as that user, or give the store a group "
            "with the setting group",
            path=request.path,
        ) from error


def _joined(request: OpenRequest) -> JoinedLog | None:
    """Join the processes that have the store open; ``None`` if there are none."""
    lock = Membership.join(request.files, request.path, _timeout_s(request))
    if lock.is_alone:
        lock.leave()
        return None
    return JoinedLog.join(request, lock)


def _timeout_s(request: OpenRequest) -> float:
    timeout_ms: int = request.settings.section(ATTACH).reconnect_timeout_ms
    return timeout_ms / 1000
