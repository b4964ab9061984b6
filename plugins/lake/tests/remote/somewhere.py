"""Tables in object stores, and how others read them: pyiceberg, and deltalake."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import attrs
import pyarrow as pa

from lakelog_lake.landing.targets import TableSpec
from lakelog_lake.sinks.base import Sink
from plugins.lake.tests.landing.passes import sink_for
from plugins.lake.tests.landing.program import Orders
from plugins.lake.tests.landing.tables import keys_in
from plugins.lake.tests.remote.servers import BUCKET, Aws


@attrs.frozen
class Somewhere:
    """A table.

    :ivar kind: what a dispatcher is told before the colon; :ivar place: and behind it
    :ivar prefix: of the keys of its files in the bucket
    :ivar storage: options
    """

    kind: str
    place: str
    prefix: str
    storage: Mapping[str, str]
    table: str | None = None

    @property
    def to(self) -> str:
        return f"{self.kind}:{self.place}"

    @property
    def spec(self) -> TableSpec:
        return TableSpec(self.to, self.table, storage=self.storage)

    @property
    def options(self) -> list[str]:
        """Of the commands."""
        table = [] if self.table is None else ["--table", self.table]
        pairs = (f"{key}={value}" for key, value in self.storage.items())
        return [*table, *(each for pair in pairs for each in ("--storage", pair))]

    def orders(self, store: Path, phase: str = "never", mode: str = "one") -> Orders:
        """For a dispatcher in a process of its own."""
        return Orders(
            store, self.kind, self.place, phase, mode=mode, name=self.table, storage=self.storage
        )

    def sink(self) -> Sink:
        return sink_for(self.to, self.table, storage=self.storage)

    def made(self) -> Sink:
        sink = self.sink()
        sink.prepare()
        return sink

    def read(self) -> pa.Table:
        """All rows, as somebody who knows nothing of lakelog reads them."""
        if self.kind == "delta":
            return self._delta().to_pyarrow_table()
        return self.iceberg().scan().to_arrow()

    def named(self) -> set[str]:
        """The keys of the data files that the newest version has."""
        if self.kind == "delta":
            found = self._delta().file_uris()
        else:
            found = [each.file.file_path for each in self.iceberg().scan().plan_files()]
        return {each.partition(f"{BUCKET}/")[2] for each in found}

    def landed_to(self) -> int:
        position = self.sink().head("S").position
        return 0 if position is None else position.end

    def assert_exactly(self, expected: list[tuple[Any, ...]]) -> None:
        found = keys_in(self.read())
        assert len(found) == len(set(found)), "rows are doubled"
        assert found == sorted(expected)

    def iceberg(self) -> Any:
        from pyiceberg.catalog import load_catalog

        return load_catalog(self.place, **self.storage).load_table(self.table or "")

    def _delta(self) -> Any:
        from deltalake import DeltaTable

        return DeltaTable(self.place, storage_options=dict(self.storage))


def delta(aws: Aws) -> Somewhere:
    prefix = f"delta-{uuid4().hex}"
    options = {**aws.environment, "allow_http": "true"}
    return Somewhere("delta", f"s3://{BUCKET}/{prefix}", prefix, options)


def iceberg(aws: Aws, name: str, properties: Mapping[str, str]) -> Somewhere:
    """A table in a namespace of its own; ``properties`` are of the catalog."""
    folder = "rest/" if name == "rest" else ""
    namespace = f"{name}_{uuid4().hex}"
    environment = aws.environment
    storage = {
        "type": name,
        "s3.endpoint": aws.url,
        "s3.access-key-id": environment["AWS_ACCESS_KEY_ID"],
        "s3.secret-access-key": environment["AWS_SECRET_ACCESS_KEY"],
        "client.region": environment["AWS_REGION"],
        **properties,
    }
    return Somewhere(
        "catalog", f"my_{name}", f"{folder}{namespace}", storage, f"{namespace}.messages"
    )
