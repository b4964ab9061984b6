"""The suites by name; to add one, name it here."""

from __future__ import annotations

from tests.bench.model import Suite
from tests.bench.suites.decode import Decode
from tests.bench.suites.find import FIND
from tests.bench.suites.put import Put, PutBatch
from tests.bench.suites.startup import Startup

SUITES: dict[str, Suite] = {
    suite.name: suite for suite in (Put(), PutBatch(), Decode(), *FIND, Startup())
}
