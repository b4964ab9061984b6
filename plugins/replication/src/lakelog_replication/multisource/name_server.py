"""Finds masters through RocketMQ's name servers, once or at an interval.

Request 106 lists brokers by name, with the address of each by broker id; a master has id 0. The
address for slaves is not in the list. A second request, for the master's settings (26), returns it
as ``brokerIP2`` and ``haListenPort`` (RocketMQ 5.3.3, ``BrokerController.getHAServerAddr``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from threading import Event, Thread
from typing import Any, Final

from lakelog.runtime.threads import started
from lakelog_replication.address import Address
from lakelog_replication.multisource.source import SourceMaster, checked_name
from lakelog_replication.remoting import GET_BROKER_CLUSTER_INFO, BrokerRefused, broker_config, call
from lakelog_rocketmq.config import parse_object

_LOG: Final = logging.getLogger("lakelog.serve")
_MASTER_ID: Final = "0"


def master_brokers(name_server: Address, cluster: str = "") -> dict[str, Address]:
    """The client address of each master that ``name_server`` lists, by broker name.

    :param cluster: list only masters of this cluster; all if empty

    Raises :class:`~lakelog_replication.remoting.BrokerRefused`.
    """
    body = call(name_server, GET_BROKER_CLUSTER_INFO).body
    try:
        table = parse_object(body)["brokerAddrTable"]
        return dict(_masters(table, cluster))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BrokerRefused(f"{name_server} answers with no list of brokers: {error!r}") from None


def _masters(table: Mapping[str, Any], cluster: str) -> Iterator[tuple[str, Address]]:
    for name, row in table.items():
        address = row["brokerAddrs"].get(_MASTER_ID)
        if address is not None and cluster in ("", row["cluster"]):
            yield name, Address.parse(address)


def source_of(name: str, broker: Address) -> SourceMaster:
    """Ask a master for its address for slaves.

    :param name: the broker's name
    :param broker: its address for clients

    Raises :class:`~lakelog_replication.remoting.BrokerRefused`, and ``ValueError`` for a name that
    no folder can have.
    """
    checked_name(name)
    config = broker_config(broker)
    port, host = config.get("haListenPort", ""), config.get("brokerIP2", "") or broker.host
    try:
        return SourceMaster(name, Address.parse(f"{host}:{port}"), broker)
    except ValueError as error:
        raise BrokerRefused(f"{broker} does not say where slaves connect: {error}") from None


def listed_masters(
    name_servers: Iterable[Address], cluster: str, on_trouble: Callable[[str], None]
) -> list[SourceMaster]:
    """The masters that answer now, from the first name server that answers.

    :param cluster: name of the cluster; all clusters if empty
    :param on_trouble: called with a text for each failure
    """
    brokers: dict[str, Address] = {}
    for each in name_servers:
        try:
            brokers = master_brokers(each, cluster)
            break
        except BrokerRefused as error:
            on_trouble(f"name server: {error}")
    found = []
    for name, broker in brokers.items():
        try:
            found.append(source_of(name, broker))
        except (BrokerRefused, ValueError) as error:
            on_trouble(f"broker {name}: {error}")
    return found


class NameServerWatch:
    """Asks name servers at an interval, in a thread."""

    def __init__(
        self,
        addresses: Sequence[Address],
        cluster: str,
        interval_s: float,
        on_found: Callable[[list[SourceMaster]], None],
    ) -> None:
        """Prepare.

        :param interval_s: pause between two requests
        :param on_found: called in the thread with the masters that answered
        """
        self._addresses = addresses
        self._cluster = cluster
        self._interval_s = interval_s
        self._on_found = on_found
        self._logged: set[str] = set()
        self._failures: set[str] = set()
        self._over = Event()

    def start(self) -> None:
        """Begin to ask; raises :class:`~lakelog.errors.ThreadNotStarted`."""
        started(Thread(target=self._run, name="lakelog-name-servers", daemon=True))

    def stop(self) -> None:
        """Stop asking; do not wait for a request under way."""
        self._over.set()

    def _run(self) -> None:
        while not self._over.is_set():
            self._failures = set()
            found = listed_masters(self._addresses, self._cluster, self._on_failure)
            for each in sorted(self._logged - self._failures):
                _LOG.info("no longer so: %s", each)
            self._logged = self._failures
            if not self._over.is_set():
                self._on_found(found)
            self._over.wait(self._interval_s)

    def _on_failure(self, what: str) -> None:
        """Log a failure when it begins; :meth:`_run` logs its end."""
        self._failures.add(what)
        if what not in self._logged:
            _LOG.warning("%s", what)
