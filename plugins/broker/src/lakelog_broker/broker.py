"""The parts of a running broker that both protocols share."""

from __future__ import annotations

from pathlib import Path

import attrs

from lakelog import Store
from lakelog.files.filesystem import RealFileSystem
from lakelog_broker.appending import Appender
from lakelog_broker.settings import BrokerSettings
from lakelog_broker.state.arrivals import ArrivalWaits
from lakelog_broker.state.members import MemberTable
from lakelog_broker.state.offsets import OffsetTable
from lakelog_broker.state.topics import TopicTable


@attrs.define(eq=False)
class Broker:
    """A broker over an open store; used from one event loop.

    :ivar address: ``host:port`` of the remoting port, once it is bound
    :ivar grpc_address: ``host:port`` of the gRPC port; empty without one
    :ivar appender: puts messages of clients
    """

    store: Store
    settings: BrokerSettings
    topics: TopicTable
    offsets: OffsetTable
    members: MemberTable
    waits: ArrivalWaits
    appender: Appender
    address: str = ""
    grpc_address: str = ""

    @classmethod
    def over(cls, store: Store, settings: BrokerSettings) -> Broker:
        """The broker of ``store``, which this process must own."""
        topics = TopicTable(RealFileSystem(), Path(store.path), settings)
        offsets = OffsetTable(store.groups(), store.commit_offsets, store.forget_offsets)

        def end_of(topic: str, queue_id: int) -> int:
            return (store.queue_bounds(topic, queue_id) or (0, 0))[1]

        waits = ArrivalWaits(store.arrivals, end_of)
        appender = Appender(store, settings.cluster)
        return cls(store, settings, topics, offsets, MemberTable(), waits, appender)

    def bound(self, host: str, port: int) -> None:
        """Note the address of the remoting port; stored messages have it as their store host."""
        self.address = self.appender.store_host = f"{host}:{port}"
