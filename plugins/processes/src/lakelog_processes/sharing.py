"""Implements the sharing of stores: the calls that the core makes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakelog.files.shared.membership import Membership
from lakelog.settings.catalog import ATTACH
from lakelog.store.roles.managing import Managing
from lakelog.store.roles.parts import RoleParts
from lakelog.store.roles.prepared import OpenRequest
from lakelog_processes.asking import Answering
from lakelog_processes.joining import JoinedLog
from lakelog_processes.telling import told


class ProcessSharing:
    """Lets the processes of a host have a store open for writing at the same time."""

    def settings(self, request: OpenRequest) -> Mapping[str, Any]:
        """The settings that joining processes must use, for the shared page."""
        return told(request.registry, request.settings)

    def admit(self, request: OpenRequest, parts: RoleParts) -> None:
        """Let this first process hand its services over later."""
        if parts.owned is not None:
            parts.joined = joined = JoinedLog(request, parts.owned)
            joined.has(parts)

    def answering(self, request: OpenRequest, manager: Managing) -> Answering:
        """Build the server of the requests of other processes."""
        return Answering(request.files, request.path, manager)

    def join(self, request: OpenRequest) -> JoinedLog | None:
        """Join the processes that have the store open; ``None`` if there are none."""
        timeout_s = request.settings.section(ATTACH).reconnect_timeout_ms / 1000
        lock = Membership.join(request.files, request.path, timeout_s)
        if lock.is_alone:
            lock.leave()
            return None
        return JoinedLog.join(request, lock)
