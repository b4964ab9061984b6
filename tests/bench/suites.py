"""The suites by name; to add one, name it here."""

from __future__ import annotations

from typing import Final

from tests.bench.broker import BROKER
from tests.bench.consume.suites import CONSUME
from tests.bench.durable.opening import OPENINGS
from tests.bench.durable.puts import PUTS
from tests.bench.finding import FIND
from tests.bench.lake.suites import LAKE
from tests.bench.model import Suite
from tests.bench.processes.suites import OWNERS, PRODUCERS
from tests.bench.replication.suites import REPLICATION

SUITES: Final[dict[str, Suite]] = {
    suite.name: suite
    for suite in (
        *(*PUTS, *FIND, *OPENINGS, *LAKE, *PRODUCERS, *OWNERS, *REPLICATION, BROKER, *CONSUME),
    )
}
