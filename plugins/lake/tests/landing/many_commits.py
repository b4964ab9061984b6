"""A table of many commits whose data files are not there: who commits does not read them."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from lakelog.format.checksum import Fingerprint
from lakelog_lake.sinks.base import Sink
from lakelog_lake.tables.data_files import BOUNDED, FileFacts
from lakelog_lake.tables.position import Position
from lakelog_lake.tables.shape import message_columns
from plugins.lake.tests.landing.passes import sink_for

STORE: Final = "8d0b7c5e-0000-4000-8000-000000000000"
_BEGIN: Final = 1_700_000_000
_PASS_BYTES: Final = 100_000


@dataclass
class Day:
    """Commits, one after the other.

    :ivar sink: is prepared
    :ivar second: of the day; how many files have been committed
    :ivar template: what data files are links to, if they are there
    """

    sink: Sink
    second: int = 0
    template: Path | None = None
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, kind: str, path: Path, history: str | None = None) -> Day:
        """A new table; :param history: what it is to keep, if not the default."""
        sink = sink_for(f"{kind}:{path}")
        sink.prepare()
        day = cls(sink)
        if kind == "iceberg":
            sink.clock = lambda: _BEGIN + day.second  # type: ignore[attr-defined]  # kinds with upkeep
        if history is not None:
            sink.keep(history)  # type: ignore[attr-defined]  # likewise
        return day

    def with_files(self) -> Day:
        """From now on data files are there, so that they can be compacted."""
        import pyarrow as pa

        from lakelog_lake.maintenance.folders import write

        columns = [each for each in message_columns() if each.name != "topic"]
        values = {"store": STORE, "queue_id": 0, "queue_offset": 0, "physical_offset": 0}
        rows = [{each.name: values.get(each.name) for each in columns}] * 10
        self.template = Path(str(self.sink.folder)) / "template"
        table = pa.Table.from_pylist(rows, pa.schema(columns))
        write(table.schema, [table], self.template)
        return self

    def commit(self, files: int = 1) -> None:
        """One pass of so many seconds, with a file each."""
        facts = [self._facts(self.second + each) for each in range(files)]
        wall, cpu = time.perf_counter(), time.process_time()
        head = self.sink.head(STORE)
        start = self.second * _PASS_BYTES
        end = start + files * _PASS_BYTES
        ends = {"orders": dict.fromkeys(range(8), self.second + files)}
        position = Position(start, end, Fingerprint(end - 1000, 1000, 7), ends, chosen="all")
        self.sink.commit(head, STORE, facts, position)
        self.wall.append(time.perf_counter() - wall)
        self.cpu.append(time.process_time() - cpu)
        self.second += files

    def _facts(self, second: int) -> FileFacts:
        lower: dict[str, int | str] = {
            "topic": "orders",
            "queue_id": 0,
            "queue_offset": second,
            "physical_offset": second * _PASS_BYTES,
            "store_timestamp": (_BEGIN + second) * 1_000_000,
        }
        columns = self.sink.layout.columns
        names = [each.name for each in columns if each.name not in ("keys", "properties")]
        sizes = dict.fromkeys(names, 900)
        path, size = str(self.sink.folder / f"{second:032x}.parquet"), 20_000
        if self.template is not None:
            os.link(self.template, path)
            size = self.template.stat().st_size
        return FileFacts(
            path=path,
            size_bytes=size,
            rows=1000,
            partition={"topic": "orders", "day": (_BEGIN + second) // 86_400},
            column_sizes=sizes,
            value_counts=dict.fromkeys(names, 1000),
            null_counts=dict.fromkeys(BOUNDED, 0),
            lower=lower,
            upper={**lower, "queue_id": 7},
            row_groups=(4,),
        )
