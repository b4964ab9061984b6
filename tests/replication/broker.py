"""Runs a real broker of RocketMQ 5.3.3 as slave, in its own folder, without a name server."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lakelog_replication.remoting import BrokerRefused, adopt
from lakelog_replication.settings import Address
from tests.replication.masterbroker import BrokerProcess, addresses, eventually, small_jvm


class SlaveBroker(BrokerProcess):
    """A slave broker.

    :ivar address: the address for requests
    """

    def __init__(
        self,
        home: Path,
        segment_size_bytes: int,
        *,
        java_flags: Sequence[str] | None = None,
        **more: object,
    ) -> None:
        settings = {
            "brokerId": 1,
            "brokerRole": "SLAVE",
            "mappedFileSizeCommitLog": segment_size_bytes,
            "slaveReadEnable": "false",
            **more,
        }
        flags = small_jvm() if java_flags is None else java_flags
        super().__init__(home, *addresses(), settings, flags)
        self.address = self.client

    def start(self, master: Address) -> None:
        self.run(self.address)

        def adopts() -> bool:
            assert self.process.poll() is None, self.last_words()
            try:
                adopt(self.address, master)
            except BrokerRefused:
                return False
            return True

        eventually(adopts)
