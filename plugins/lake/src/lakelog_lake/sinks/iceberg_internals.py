"""What pyiceberg has only under private names: a commit without retries, and merged manifests.

No other module uses such names; ``PRIVATE`` of ``tests/packages/test_versions.py`` lists them, and
they are tried with the oldest and the newest version that ``pyproject.toml`` allows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import (
    AssertTableUUID,
    RemoveSnapshotsUpdate,
    TableRequirement,
    TableUpdate,
    _apply_table_update,
    _TableMetadataUpdateContext,
)
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.utils.properties import property_as_bool, property_as_int

from lakelog_lake.tables.data_files import Weight, mergeable

_LARGEST_BYTES: Final = 2 << 20
"""Most bytes in a merged manifest; a merge of more would take seconds."""
_NEWEST_FORMAT: Final = 2


class SteadyTransaction(Transaction):
    """A transaction without pyiceberg's deep copies of the metadata, about a dozen per commit."""

    _known: tuple[tuple[TableUpdate, ...], TableMetadata] | None = None

    @property
    def table(self) -> Table:
        """The version of the table on which it is built."""
        return self._table

    @property
    def table_metadata(self) -> TableMetadata:
        """The metadata with the staged updates applied; callers must not modify it."""
        if not self._updates:
            return self._table.metadata
        if self._known is None or self._known[0] is not self._updates:
            made, context = self._table.metadata, _TableMetadataUpdateContext()
            for each in self._updates:
                made = _apply_table_update(each, made, context)
            self._known = self._updates, made
        return self._known[1]

    def expire(self, snapshot_ids: Sequence[int]) -> None:
        """Stage the removal of snapshots, none of which a branch or tag names.

        ``ExpireSnapshots`` of pyiceberg 0.10 removes those of earlier transactions once more.
        """
        ids = list(snapshot_ids)
        self._apply((RemoveSnapshotsUpdate.model_validate({"snapshot-ids": ids}),))

    def commit_once(self, *requirements: TableRequirement) -> None:
        """Commit, if ``requirements`` hold as well, without retries.

        pyiceberg 0.12 would otherwise rebase an append after a conflict, and land a range twice.
        Raises pyiceberg's ``CommitFailedException``.
        """
        same = AssertTableUUID(uuid=self._table.metadata.table_uuid)
        required = (*self._requirements, *requirements, same)
        self._table._do_commit(updates=self._updates, requirements=required)


class TieredAppend(_FastAppendFiles):
    """A fast append that merges older manifests.

    :ivar named: paths of the manifests of its snapshot
    """

    named: frozenset[str] = frozenset()

    def __init__(self, transaction: SteadyTransaction, properties: dict[str, str]) -> None:
        io = transaction.table.io
        super().__init__(Operation.APPEND, transaction, io, snapshot_properties=properties)

    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        made = self._merged(manifests) if self._may_merge() else manifests
        self.named = frozenset(each.manifest_path for each in made)
        return made

    def _may_merge(self) -> bool:
        metadata = self._transaction.table_metadata
        enabled = property_as_bool(
            metadata.properties, TableProperties.MANIFEST_MERGE_ENABLED, True
        )
        return enabled and metadata.format_version <= _NEWEST_FORMAT

    def _merged(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        properties = self._transaction.table_metadata.properties
        size = TableProperties.MANIFEST_TARGET_SIZE_BYTES
        most = min(property_as_int(properties, size, _LARGEST_BYTES) or 0, _LARGEST_BYTES)
        found: dict[int, list[ManifestFile]] = defaultdict(list)
        stay: list[ManifestFile] = []
        for each in manifests:
            is_old = each.added_snapshot_id != self.snapshot_id
            is_ours = is_old and each.content == ManifestContent.DATA
            (found[each.partition_spec_id] if is_ours else stay).append(each)
        for spec_id, same in found.items():
            gone = set[int]()
            for places in mergeable([_weight(each) for each in same], most):
                stay.append(self._one(spec_id, [same[place] for place in places]))
                gone.update(places)
            stay += [each for place, each in enumerate(same) if place not in gone]
        return stay

    def _one(self, spec_id: int, manifests: Sequence[ManifestFile]) -> ManifestFile:
        """One manifest with the files of older ones, except those that were removed."""
        with self.new_manifest_writer(self.spec(spec_id)) as writer:
            for manifest in manifests:
                for entry in self.fetch_manifest_entry(manifest):
                    writer.existing(entry)
        return writer.to_manifest_file()


def _weight(manifest: ManifestFile) -> Weight:
    files = (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)
    return Weight(files, manifest.manifest_length)
