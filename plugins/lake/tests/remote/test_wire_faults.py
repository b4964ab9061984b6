"""Two dispatchers, expiry and compaction at once, with faults on the wire: ``faulty_server.py``.

The dispatchers of the first round create the table. After each round everything is cleaned, others
count the rows, and the files that are left are exactly those that the table names.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import attrs
import pyarrow as pa
import pytest
from pyarrow import parquet

from lakelog.errors import LakelogError
from lakelog_lake.landing.dispatcher import LandingDispatcher
from lakelog_lake.landing.targets import targets_for
from lakelog_lake.maintenance import terms
from lakelog_lake.maintenance.tables import compact, expire
from lakelog_lake.maintenance.terms import RetentionTerms
from lakelog_lake.sinks.iceberg import data_file
from lakelog_lake.tables.data_files import facts_of
from lakelog_lake.tables.shape import DEFAULT
from lakelog_lake.tasks.engines import Engine
from lakelog_lake.tasks.task import LandingSource
from plugins.lake.tests.landing import program
from plugins.lake.tests.landing import program_runs as runs
from plugins.lake.tests.landing.tables import counted_by_duckdb, keys_of
from plugins.lake.tests.landing.test_cli import run as cli
from plugins.lake.tests.remote.servers import BUCKET, Aws, faults
from plugins.lake.tests.remote.somewhere import Somewhere
from plugins.lake.tests.remote.test_object_store import lakelog_runs
from plugins.lake.tests.stores import filled
from tests.support.sampling import seed_of_this_run
from tests.support.waiting import until

ALL = ["delta", "glue", "sql", pytest.param("rest", marks=pytest.mark.java)]
RATE = 0.06
"""Of the requests; a client that repeats one a few times still meets an end now and then."""
_log = logging.getLogger(__name__)


@attrs.define
class Rounds:
    """Rounds on one table; see the module.

    :ivar engine: by which one of the dispatchers lands, in this process
    """

    place: Somewhere
    store: Path
    aws: Aws
    engine: Engine | None = None
    met: Counter[str] = attrs.field(factory=Counter)
    trouble: Counter[str] = attrs.field(factory=Counter)

    def one(self, seed: str) -> None:
        """Land messages with faults; then clean, and check."""
        chance = Random(seed)
        filled(self.store, chance.choice([20, 60, 240]))
        with self._faults(chance), ThreadPoolExecutor(1) as beside:
            orders = self.place.orders(self.store, mode="through")
            here = [] if self.engine is None else [beside.submit(self._land_by, self.engine)]
            started = [runs.start(orders) for _ in range(2 - len(here))]
            while any(e.process.is_alive() for e in started) or not all(e.done() for e in here):
                self._care(chance)
            for landed in here:
                self.trouble += landed.result()
            for each in started:
                assert each.hear("ready"), each.errors.read_text()
                assert each.pipe.poll(runs.LONGEST_SECONDS), "it hangs"
                self.trouble += each.pipe.recv()
                assert each.wait() == 0
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(terms, "SAFE_SECONDS", 0)
            self._expire(RetentionTerms(0))
        self._check(seed)
        keys = self.aws.objects(self.place.prefix)
        there = {each for each in keys if not each.endswith("/")}  # Arrow makes such for folders
        assert not sorted(there - kept(self.place, there)), seed

    def _land_by(self, engine: Engine) -> Counter[str]:
        source = LandingSource(self.store, "S")
        return program.through(
            lambda: LandingDispatcher(source, targets_for(self.place.spec), engine, program.BOUNDS)
        )

    @contextmanager
    def _faults(self, chance: Random) -> Iterator[None]:
        rest = self.place.storage.get("uri", "")
        servers = {self.aws.url, rest} if rest.startswith("http") else {self.aws.url}
        for url in servers:
            path = rf"{self.place.prefix}|^/$|/namespaces/"
            faults(url, rate=RATE, path=path, seed=chance.getrandbits(32))
        yield
        for url in servers:
            self.met += faults(url)
            faults(url, rate=0.0)
            until(partial(is_idle, url), "a request hangs")

    def _care(self, chance: Random) -> None:
        """As somebody else does; what fails may fail, by an error of lakelog's."""
        care = chance.choice(["expire", "compact"])
        try:
            if care == "expire":
                self._expire(RetentionTerms(0, chance.choice([1, 3, 9])))
            elif self.place.kind == "delta":
                compact(self.place.to, None, 1 << 20, None, self.place.storage)
            else:
                with suppress(Exception):  # not lakelog's
                    merge(self.place.iceberg(), chance)
        except LakelogError as error:
            self.trouble[f"{care}: {type(error).__name__}"] += 1
        else:
            self.trouble[f"{care}: done"] += 1

    def _expire(self, retention: RetentionTerms) -> None:
        expire(self.place.to, self.place.table, retention, self.place.storage)

    def _check(self, seed: str) -> None:
        """By pyiceberg or deltalake, by DuckDB, and by the files themselves."""
        expected = keys_of(self.store, "S")
        self.place.assert_exactly(expected)
        assert counted_by_duckdb(self.place.read()) == [len(expected)] * 2, seed
        contents = (pa.BufferReader(self.aws.content(each)) for each in self.place.named())
        assert sum(parquet.read_metadata(each).num_rows for each in contents) == len(expected), seed


def is_idle(url: str) -> bool:
    """Whether no late request is under way."""
    return not faults(url)["running"]


def kept(place: Somewhere, there: set[str]) -> set[str]:
    """The keys of all files that the table names after expiry, its log included."""
    if place.kind == "delta":
        return place.named() | {each for each in there if "/_delta_log/" in each}
    table = place.iceberg()
    found = {table.metadata_location, *(e.metadata_file for e in table.metadata.metadata_log)}
    for snapshot in table.metadata.snapshots:
        found.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            found.add(manifest.manifest_path)
            entries = manifest.fetch_manifest_entry(table.io)
            found |= {each.data_file.file_path for each in entries}
    return {each.partition(f"{BUCKET}/")[2] for each in found}


def merge(table: Any, chance: Random) -> None:
    """Replace two files or more of one partition by one, as other engines do."""
    found = defaultdict(list)
    for each in table.scan().plan_files():
        found[repr(each.file.partition)].append(each.file)
    group = chance.choice(list(found.values()))
    if len(group) == 1:
        return
    inputs = (table.io.new_input(each.file_path).open() for each in group)
    rows = pa.concat_tables([parquet.read_table(each) for each in inputs])
    uri = f"{table.location()}/data/merged-{uuid4().hex}.parquet"
    made = pa.BufferOutputStream()
    with parquet.ParquetWriter(made, rows.schema, store_schema=False) as writer:
        writer.write_table(rows)
    content = made.getvalue().to_pybytes()
    with table.io.new_output(uri).create() as file:
        file.write(content)
    values = dict(zip(DEFAULT, group[0].partition, strict=True))
    facts = facts_of(writer.writer.metadata, uri, len(content), values)
    transaction = table.transaction()
    with transaction.update_snapshot().overwrite() as overwrite:
        for each in group:
            overwrite.delete_data_file(each)
        overwrite.append_data_file(
            data_file(table.schema(), table.metadata.default_spec_id, facts, uri)
        )
    transaction._snapshot_producers = []  # no retry, which would hide a conflict
    transaction.commit_transaction()


def run(rounds: Rounds, count: int) -> None:
    for number in range(count):
        rounds.one(f"{seed_of_this_run()} {number}")
    _log.info("%s: met %s, trouble %s", rounds.place.prefix, rounds.met, rounds.trouble)


@pytest.mark.timeout(300)
@pytest.mark.sample(2)
@pytest.mark.parametrize("place", ALL, indirect=True)
def test_a_round_of_faults_loses_and_doubles_nothing(
    place: Somewhere, tmp_path: Path, aws: Aws
) -> None:
    run(Rounds(place, tmp_path / "s", aws), 1)


@pytest.mark.parametrize("place", ["sql"], indirect=True)
def test_an_expiry_that_cannot_read_everything_removes_nothing(
    place: Somewhere, store_path: Path, aws: Aws
) -> None:
    lakelog_runs("dispatch", store_path, "--to", place.to, "--once", *place.options)
    filled(store_path, 20)
    lakelog_runs("dispatch", store_path, "--to", place.to, "--once", *place.options)
    before = set(aws.objects(place.prefix))
    faults(aws.url, rate=1.0, path=rf"{place.prefix}.*avro$", kinds=["cut"])
    done = cli("lake", "expire", place.to, "--older-than", "0s", *place.options)
    faults(aws.url, rate=0.0)
    assert done.exit_code == 4
    assert done.stderr.count("\n") == 1, done.stderr
    assert before == set(aws.objects(place.prefix))


@pytest.mark.soak
@pytest.mark.parametrize("number", range(8))
@pytest.mark.parametrize("place", ALL, indirect=True)
def test_many_rounds_of_faults(place: Somewhere, tmp_path: Path, aws: Aws, number: int) -> None:
    """Of 25 each: a table of thousands of files would take its time only to be read."""
    run(Rounds(place, tmp_path / "s", aws), 25)
