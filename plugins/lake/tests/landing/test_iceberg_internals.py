"""What the adapter uses of pyiceberg under private names is there, and does what it relies on.

``tests/packages/test_versions.py`` runs this with each version that is allowed.
"""

from __future__ import annotations

import ast
import inspect
import json
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest
from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    AssertTableUUID,
    RemoveSnapshotsUpdate,
    SetPropertiesUpdate,
    update_table_metadata,
)

from lakelog_lake.sinks import iceberg_internals
from lakelog_lake.sinks.iceberg_internals import SteadyTransaction, TieredAppend
from lakelog_lake.tasks.task import LandingSource
from plugins.lake.tests.landing.tables import iceberg, land_one, make

PRIVATE: Final = (
    ("pyiceberg.table", "Transaction", ("_apply", "_table", "_updates", "_requirements")),
    ("pyiceberg.table", "Table", ("_do_commit",)),
    ("pyiceberg.table.update", "UpdateTableMetadata", ("_transaction",)),
    ("pyiceberg.table.update.snapshot", "_FastAppendFiles", ("_process_manifests",)),
    ("pyiceberg.catalog", "MetastoreCatalog", ("_update_and_stage_table",)),
    ("pyiceberg.catalog.sql", "SqlCatalog", ("_convert_orm_to_iceberg",)),
    ("pyiceberg.catalog.glue", "GlueCatalog", ("_convert_glue_to_iceberg",)),
)
"""Module, name, and attributes that the adapter uses."""


@pytest.fixture
def path(source: LandingSource, tmp_path: Path) -> Path:
    """Of a table with two snapshots."""
    path = tmp_path / "t"
    for _ in range(2):
        land_one(source, make("iceberg", path))
    return path


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch, path: Path) -> list[tuple[Any, Any]]:
    """The requirements and updates of each commit that a catalog gets from now on."""
    seen = list[tuple[Any, Any]]()
    kind: Any = type(iceberg(path).catalog).__mro__[1]
    commit = kind.commit_table

    def noted(self: Catalog, table: Table, requirements: Any, updates: Any) -> Any:
        seen.append((requirements, updates))
        return commit(self, table, requirements, updates)

    monkeypatch.setattr(kind, "commit_table", noted)
    return seen


@pytest.mark.parametrize(("module", "name", "attributes"), PRIVATE)
def test_private_names_are_there(module: str, name: str, attributes: tuple[str, ...]) -> None:
    """A change of these ends landing with an error: better here."""
    found = getattr(import_module(module), name)
    stated = {name for each in found.__mro__ for name in inspect.get_annotations(each)}
    assert {*attributes} <= {*dir(found), *stated}


def test_the_adapter_uses_no_others() -> None:
    nodes = list(ast.walk(ast.parse(inspect.getsource(iceberg_internals))))
    used = {each.attr for each in nodes if isinstance(each, ast.Attribute)}
    ours = {each.name for each in nodes if isinstance(each, ast.FunctionDef)}
    ours |= {ast.unparse(each.target) for each in nodes if isinstance(each, ast.AnnAssign)}
    listed = {name for _, _, attributes in PRIVATE for name in attributes}
    private = {each for each in used if each.startswith("_") and not each.startswith("__")}
    assert private - ours <= listed <= private | ours


def test_updates_are_staged_until_one_commit_has_them_all(
    path: Path, commits: list[tuple[Any, Any]]
) -> None:
    table = iceberg(path)
    transaction, first = SteadyTransaction(table), table.metadata.snapshots[0].snapshot_id
    assert transaction.table is table
    transaction.expire([first])
    transaction.set_properties({"a": "b"})
    assert commits == []
    assert transaction.table_metadata.snapshot_by_id(first) is None
    assert table.metadata.snapshot_by_id(first) is not None
    same = AssertCurrentSchemaId.model_validate({"current-schema-id": table.schema().schema_id})
    transaction.commit_once(same)
    ((requirements, updates),) = commits
    assert [type(each) for each in updates] == [RemoveSnapshotsUpdate, SetPropertiesUpdate]
    assert {same, AssertTableUUID(uuid=table.metadata.table_uuid)} <= {*requirements}
    for each in (table, iceberg(path)):
        assert each.metadata.snapshot_by_id(first) is None
        assert each.properties["a"] == "b"


def test_a_conflict_is_not_tried_again(path: Path, commits: list[tuple[Any, Any]]) -> None:
    transaction = SteadyTransaction(iceberg(path))
    TieredAppend(transaction, {}).commit()
    iceberg(path).transaction().set_properties({"a": "b"}).commit_transaction()
    land = SteadyTransaction(iceberg(path))
    TieredAppend(land, {}).commit()
    land.commit_once()
    version = iceberg(path).metadata_location
    commits.clear()
    with pytest.raises(CommitFailedException):
        transaction.commit_once()
    assert len(commits) == 1
    assert iceberg(path).metadata_location == version


def test_an_append_has_the_manifests_that_were_processed(path: Path) -> None:
    before = iceberg(path).current_snapshot()
    transaction = SteadyTransaction(iceberg(path))
    append = TieredAppend(transaction, {"of": "somebody"})
    append.commit()
    transaction.commit_once()
    table = iceberg(path)
    made = table.current_snapshot()
    assert (made.snapshot_id, made.parent_snapshot_id) == (append.snapshot_id, before.snapshot_id)
    assert made.summary["of"] == "somebody"
    named = {each.manifest_path for each in made.manifests(table.io)}
    assert named == append.named == {e.manifest_path for e in before.manifests(table.io)}


def test_versions_of_the_metadata_share_what_has_not_changed(path: Path) -> None:
    """And are as pyiceberg makes them."""
    metadata = iceberg(path).metadata
    text = metadata.model_dump_json()
    change = (SetPropertiesUpdate(updates={"a": "b"}),)
    made = update_table_metadata(metadata, change)
    assert made.snapshots[0] is metadata.snapshots[0]
    assert metadata.model_dump_json() == text
    theirs = update_table_metadata(TableMetadataUtil.parse_raw(text), change)
    assert theirs.properties == made.properties
    later = theirs.model_copy(update={"last_updated_ms": made.last_updated_ms})
    assert json.loads(later.model_dump_json()) == json.loads(made.model_dump_json())


def test_changes_without_a_snapshot_are_staged_by_the_catalog(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There their times are set; ``test_times_rise_though_the_clock_is_set_back`` shows these."""
    seen, stage = list[Any](), MetastoreCatalog._update_and_stage_table

    def noted(*arguments: Any) -> Any:
        seen.append(stage(*arguments))
        return seen[-1]

    monkeypatch.setattr(MetastoreCatalog, "_update_and_stage_table", noted)
    iceberg(path).transaction().set_properties({"a": "b"}).commit_transaction()
    assert [each.properties["a"] for each in seen] == ["b"]
    assert iceberg(path).metadata.last_updated_ms == seen[0].metadata.last_updated_ms
