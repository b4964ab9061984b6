"""The suites by name; to add one, name it here."""

from __future__ import annotations

from tests.bench.model import Suite
from tests.bench.suites.broker import Broker
from tests.bench.suites.decode import Decode
from tests.bench.suites.direct import Direct
from tests.bench.suites.durable import Durable, DurableBatch
from tests.bench.suites.find import FIND
from tests.bench.suites.lake import Lake
from tests.bench.suites.lakelatency import LakeLatency
from tests.bench.suites.opening import Opening
from tests.bench.suites.processes import PROCESSES
from tests.bench.suites.put import Put, PutBatch
from tests.bench.suites.recovery import Recovery, Verify
from tests.bench.suites.replication import REPLICATION
from tests.bench.suites.stall import Stall
from tests.bench.suites.startup import Startup
from tests.bench.suites.timed import Timed

SUITES: dict[str, Suite] = {
    suite.name: suite
    for suite in (
        *(Put(), PutBatch(), Decode(), *FIND, Startup()),
        *(Durable(), DurableBatch(), Timed(), Direct(), Stall(), Opening(), Recovery()),
        *(Verify(), Lake(), LakeLatency(), *PROCESSES, *REPLICATION, Broker()),
    )
}
