"""A replica of a lakelog master: puts that wait for it, and a master that is killed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import lakelog
from lakelog.errors import StoreError
from lakelog.results import PutStatus
from lakelog_testing.samples import copy_store
from plugins.replication.tests.certificates import CertificateAuthority
from plugins.replication.tests.masterstores import status_of
from plugins.replication.tests.replica.copies import (
    SEGMENT,
    bodies,
    log_of,
    queued,
    replica,
    stopped,
    synced_end,
    until,
)
from tests.support.sampling import chance


@contextmanager
def leading(
    path: Path, port: int = 0, core: Mapping[str, Any] | None = None, /, **section: Any
) -> Iterator[tuple[lakelog.Store, str]]:
    """A store that sends its log, and where.

    :param core: settings besides those of the section
    """
    with lakelog.open(
        path,
        segment_size_bytes=SEGMENT,
        replicator="rocketmq-ha",
        on_late="return",
        rocketmq_ha={"port": port, "slave_timeout_ms": 60_000, **section},
        **(core or {}),
    ) as store:
        until(lambda: status_of(path) is not None)
        found = status_of(path)
        assert found is not None
        yield store, found.listening


def message(number: int) -> lakelog.Message:
    return lakelog.Message("orders", number.to_bytes(4) * 100, keys=f"k{number}")


def test_a_put_waits_until_a_replica_has_it_durably(tmp_path: Path) -> None:
    with leading(tmp_path / "master", in_sync_replicas=2) as (store, address):
        assert store.put(message(0)).status is PutStatus.SLAVE_NOT_AVAILABLE
        with replica(tmp_path / "copy", address, learner=False) as copy:
            until(lambda: copy.max_offset == store.max_offset)
            for number in range(1, 30):
                result = store.put(message(number))
                assert result.status is PutStatus.PUT_OK
                assert synced_end(copy) >= result.end_offset
            until(lambda: copy.flushed_offset == store.max_offset)
            assert bodies(copy) == bodies(store)
            assert copy.wait_dispatched()
            assert store.wait_dispatched()
            assert queued(copy) == queued(store)


def test_a_learner_is_counted_for_no_put(tmp_path: Path) -> None:
    short = {"in_sync_replicas": 2, "slave_timeout_ms": 200}
    with leading(tmp_path / "master", **short) as (store, address):
        store.put(message(0))
        with replica(tmp_path / "copy", address) as copy:
            until(lambda: copy.max_offset == store.max_offset)
            result = store.put(message(1))
            assert result.status is not PutStatus.PUT_OK
            until(lambda: copy.max_offset == result.end_offset)


def test_a_copy_of_an_empty_master_waits_for_its_first_message(tmp_path: Path) -> None:
    with (
        leading(tmp_path / "master") as (store, address),
        replica(tmp_path / "copy", address) as copy,
    ):
        assert copy.max_offset == 0
        store.put(message(0))
        until(lambda: copy.max_offset == store.max_offset)
        assert bodies(copy) == bodies(store)


def test_a_copy_of_a_master_without_its_first_segment_begins_at_the_last(tmp_path: Path) -> None:
    few = {"cleaner": "retention", "retention": {"max_segments": 2, "delete_interval_ms": 0}}
    with leading(tmp_path / "master", 0, few) as (store, address):
        for number in range(600):
            store.put(message(number))
        assert store.wait_dispatched()
        store.delete_expired()
        assert store.min_offset > 0
        with replica(tmp_path / "copy", address) as copy:
            until(lambda: copy.max_offset == store.max_offset)
            assert copy.min_offset == store.max_offset - store.max_offset % SEGMENT


def test_a_pair_with_certificates_of_one_authority(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path / "certificates", "ours")
    other = CertificateAuthority(tmp_path / "others", "theirs")
    files = authority.issue("master")
    with leading(tmp_path / "master", 0, in_sync_replicas=2, **files) as (store, address):
        store.put_batch([message(number) for number in range(3000)])  # more than sockets buffer
        files = authority.issue("slave")
        with replica(tmp_path / "copy", address, learner=False, **files) as copy:
            until(lambda: copy.max_offset == store.max_offset)
            assert store.put(message(3000)).status is PutStatus.PUT_OK
            assert bodies(copy) == bodies(store)
        with pytest.raises(StoreError, match="cannot be asked where to begin"):
            replica(tmp_path / "new", address, **other.issue("stranger")).__enter__()


_CHILD = """
import sys
from pathlib import Path
import lakelog
from lakelog.files.filesystem import RealFileSystem
from lakelog_daemon.replication_status import read_status
path, port, number = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
section = {"port": port, "send": "written"}
more = {"segment_size_bytes": 1 << 16, "replicator": "rocketmq-ha", "rocketmq_ha": section}
with lakelog.open(path, **more) as store:
    while True:
        store.put(lakelog.Message("orders", number.to_bytes(4) * 100, keys=f"k{number}"))
        number += 1
        print(number, read_status(RealFileSystem(), path).listening, flush=True)
"""


@contextmanager
def putting(path: Path, port: int, first: int) -> Iterator[Callable[[], tuple[int, str]]]:
    """A process that puts into a master until it is killed; gives how many, and where it sends."""
    command = [sys.executable, "-c", _CHILD, str(path), str(port), str(first)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        lines = child.stdout

        def said() -> tuple[int, str]:
            count, address = lines.readline().split()
            return int(count), address

        yield said
        child.kill()


def test_a_copy_follows_a_master_that_is_killed(tmp_path: Path) -> None:
    with ExitStack() as stack:
        with putting(tmp_path / "master", 0, 0) as said:
            sent, address = said()
            port = int(address.rpartition(":")[2])
            copy = stack.enter_context(replica(tmp_path / "copy", address))
            while copy.max_offset < 2 * SEGMENT:
                sent, _ = said()
        for _ in range(2):
            before = copy.max_offset
            with putting(tmp_path / "master", port, sent) as said:
                while copy.max_offset < before + SEGMENT:
                    sent, _ = said()
        with leading(tmp_path / "master", port) as (store, _):
            until(lambda: copy.max_offset == store.max_offset)
            assert bodies(copy) == bodies(store)
            end = store.max_offset
    assert log_of(tmp_path / "copy", end) == log_of(tmp_path / "master", end)


REGROWN = 0, 5, 200


@pytest.mark.parametrize(
    "regrown", [None, *(pytest.param(each, marks=pytest.mark.slow) for each in REGROWN)]
)
@pytest.mark.parametrize("durable", [False, True])
def test_a_master_that_was_set_back_is_found_out(
    tmp_path: Path, regrown: int | None, *, durable: bool
) -> None:
    """A master of lakelog closes a connection that asks for more than it has.

    :param regrown: number of messages that it gets after that; ``None`` samples one
    """
    regrown = chance().choice(REGROWN) if regrown is None else regrown
    path, place = tmp_path / "master", tmp_path / "copy"
    vouch = {"vouch": "received"} if durable else {"vouch": "age", "vouch_age_ms": 3_600_000}
    with leading(path) as (store, address):
        for number in range(300):
            store.put(message(number))
        parted = store.max_offset
        with replica(place, address) as copy:
            until(lambda: copy.flushed_offset == parted)
    port = int(address.rpartition(":")[2])
    copy_store(path, tmp_path / "backup")
    with leading(path, port) as (store, _), replica(place, address, **vouch) as copy:
        for number in range(300, 360):
            store.put(message(number))
        until(lambda: copy.max_offset == store.max_offset)
        until(lambda: copy.flushed_offset == (store.max_offset if durable else parted))
        end = store.max_offset
    shutil.rmtree(path)
    copy_store(tmp_path / "backup", path)
    with leading(path, port) as (store, _):
        for number in range(9000, 9000 + regrown):
            store.put(message(number))
        store.flush()
        error = stopped(place, address)
        assert (error.offset, error.is_mended) == (parted, not durable)
        if durable:
            assert f"from {parted} to {end}" in str(error)
            lakelog.cut_replica(place, parted)
        with replica(place, address) as copy:
            until(lambda: copy.max_offset == store.max_offset)
            assert bodies(copy) == bodies(store)
            end = store.max_offset
    assert log_of(place, end) == log_of(path, end)
