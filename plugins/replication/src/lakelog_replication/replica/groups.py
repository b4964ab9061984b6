"""Copies the state of the master's broker that is not in its log: consumer offsets and topics."""

from __future__ import annotations

import logging
from threading import Event, Thread
from typing import Final

from lakelog.errors import LakelogError
from lakelog.interfaces import Context
from lakelog.runtime.threads import started
from lakelog_queues.consumers.offsets import Commit
from lakelog_queues.consumers.offsettable import OffsetTable
from lakelog_replication.address import Address
from lakelog_replication.remoting import GET_ALL_CONSUMER_OFFSET, BrokerRefused, call
from lakelog_replication.replica.configs import copy_configs
from lakelog_rocketmq.config.consumeroffsets import Offsets, read_offsets, split_name
from lakelog_rocketmq.config.lenient import parse_object

_LOG: Final = logging.getLogger("lakelog")


def consumer_offsets(broker: Address) -> Offsets:
    """The next queue offset to consume, by ``TOPIC@GROUP`` and queue id (request 43).

    Raises :class:`~lakelog_replication.remoting.BrokerRefused`.
    """
    body = call(broker, GET_ALL_CONSUMER_OFFSET).body
    try:
        return read_offsets(parse_object(body))
    except ValueError as error:
        raise BrokerRefused(f"{broker} answers with no consumer offsets: {error}") from None


class GroupCopier:
    """Copies consumer offsets and settings of the master to a replica, in a thread, at an interval.

    Offsets of groups that the master does not have stay unchanged.
    """

    def __init__(self, broker: Address, context: Context, interval_s: float) -> None:
        """Start the thread; raises :class:`~lakelog.errors.ThreadNotStarted`.

        :param broker: the master's address for clients
        """
        self._broker = broker
        self._files, self._path = context.files, context.path
        self._table = OffsetTable(context.files, context.path)
        self._interval_s = interval_s
        self._known: Offsets = {}
        self._over = Event()
        self._why = ""
        self._thread = started(Thread(target=self._run, name="lakelog-replica-groups", daemon=True))

    def close(self) -> None:
        """Stop the thread; a copy under way is completed."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self._copy()
                why = ""
            except LakelogError as error:
                why = str(error)
            if why != self._why:
                self._why = why
                _LOG.warning("groups and topics: %s", why or f"{self._broker} answers again")
            self._over.wait(self._interval_s)

    def _copy(self) -> None:
        """Copy all; the settings are copied even if the offsets cannot be."""
        try:
            self._copy_positions()
        finally:
            copy_configs(self._broker, self._files, self._path)

    def _copy_positions(self) -> None:
        found = consumer_offsets(self._broker)
        commits: list[Commit] = []
        for name, offsets in found.items():
            split = split_name(name)
            if split is not None and offsets != self._known.get(name):
                commits.append((split[1], split[0], offsets))
        if commits:
            self._table.commit_all(commits)
        self._known = found
