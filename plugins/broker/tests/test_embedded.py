"""A broker in a thread of this process."""

from __future__ import annotations

import grp
import os
import socket
from pathlib import Path
from typing import Any, Final

import pytest

import lakelog
from lakelog import dispatch
from lakelog.errors import SettingsError, StoreFailed, StoreLocked, WrongType, WrongValue
from lakelog.files.filesystem import File, RealFileSystem
from lakelog_broker.codes import Refused
from lakelog_broker.embedded import EmbeddedBroker, PortUnavailable
from lakelog_broker.remoting.requests import RequestCode
from lakelog_broker.settings import BrokerSettings
from lakelog_queues.configs import topics_of
from lakelog_queues.store import queue_parts
from lakelog_replication.remoting import BrokerRefused, call
from lakelog_replication.settings import Address
from lakelog_testing.faultyfile import FaultyFile
from plugins.broker.tests.raw_client import send
from tests.support.waiting import until

SMALL: Final[dict[str, Any]] = {"segment_size_bytes": "1MiB", "preallocate": False}


def test_messages_are_those_acknowledged_in_the_order_of_the_log(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "store", **SMALL) as broker:
        for number in range(20):
            send(broker.namesrv, "orders", b"%d" % number, number % 4)
        assert [bytes(each.body) for each in broker.messages("orders")] == [
            b"%d" % number for number in range(20)
        ]
        assert {each.store_host for each in broker.messages("orders")} == {broker.namesrv}
        assert broker.messages("others") == []
    with lakelog.open(tmp_path / "store", mode="read") as store:
        assert len(list(store.scan())) == 20


def test_no_request_waits_for_dispatching(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One loop serves all clients: a wait for the newest message would hold them all."""
    monkeypatch.setattr(dispatch, "CATCH_UP_SECONDS", 3600.0)
    with EmbeddedBroker(tmp_path / "store", **SMALL) as broker:
        runner: Any = queue_parts(broker.store._current.now()).log.dispatching
        with runner.paused():
            send(broker.namesrv, "orders", b"x")
            place = {"topic": "orders", "queueId": "0"}
            end = call(Address.parse(broker.namesrv), RequestCode.GET_MAX_OFFSET, place)
            assert end.fields["offset"] == "0"
        assert [bytes(each.body) for each in broker.messages("orders")] == [b"x"]


def test_a_topic_is_created_with_its_type(tmp_path: Path) -> None:
    path, settings = tmp_path / "store", BrokerSettings(port=0, auto_create_topics=False)
    with EmbeddedBroker(path, settings, **SMALL) as broker:
        with pytest.raises(BrokerRefused, match="not exist"):
            send(broker.namesrv, "orders", b"a")
        broker.create_topic("orders", queues=2, message_type="FIFO")
        assert send(broker.namesrv, "orders", b"a", 1) == 0
        with pytest.raises(Refused, match="characters"):
            broker.create_topic("no topic")
    found = topics_of(RealFileSystem(), path)["orders"]
    assert (found.read_queues, found.write_queues) == (2, 2)
    assert found.attributes == {"message.type": "FIFO"}


@pytest.mark.parametrize("name", ["name", "queues", "message_type"])
def test_a_topic_that_topics_json_cannot_hold_is_named_and_not_written(
    tmp_path: Path, name: str
) -> None:
    wrong = [b"x", 1.5, ["x"], object(), *(() if name == "message_type" else (None,))]
    wrong += ["1", 0, -1, 1 << 31, 10**5000] if name == "queues" else [5]
    with EmbeddedBroker(tmp_path / "store", **SMALL) as broker:
        broker.create_topic("orders")
        before = topics_of(RealFileSystem(), tmp_path / "store")
        for value in wrong:
            given: dict[str, Any] = {"name": "orders", name: value}
            with pytest.raises((WrongType, WrongValue), match=f"{name} is "):
                broker.create_topic(**given)
        assert topics_of(RealFileSystem(), tmp_path / "store") == before


def test_a_broker_of_wrong_arguments_is_not_made(tmp_path: Path) -> None:
    wrong: Any
    for wrong in (b"x", 5, None, ["x"], "\0", "\ud800", ""):
        with pytest.raises((WrongType, WrongValue), match="path is "):
            EmbeddedBroker(wrong)
    for wrong in (b"x", 5, {"port": 0}, BrokerSettings):
        with pytest.raises(WrongType, match="broker is "):
            EmbeddedBroker(tmp_path, wrong)


def test_files_of_a_shared_store_can_be_read_by_its_group(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with lakelog.open(path, group=grp.getgrgid(os.getgid()).gr_name, **SMALL):
        pass
    with EmbeddedBroker(path, **SMALL) as broker:
        broker.create_topic("orders")
    assert (path / "config" / "topics.json").stat().st_mode & 0o060 == 0o060


def test_an_error_at_the_start_is_raised_and_leaves_nothing_open(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        elsewhere = BrokerSettings(port=0, host="192.0.2.1", allow_anonymous=True)
        for settings in (BrokerSettings(port=port), elsewhere):
            with pytest.raises(PortUnavailable, match="cannot be bound"):
                EmbeddedBroker(path, settings, **SMALL).start()
    with pytest.raises(SettingsError, match="segment_size"):
        EmbeddedBroker(path, segment_size_byte=1).start()
    with lakelog.open(path, mode="exclusive"):
        pass


def test_a_store_has_one_broker_and_other_writers(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with EmbeddedBroker(path, **SMALL) as broker:
        with pytest.raises(StoreLocked, match="another broker serves this store"):
            EmbeddedBroker(path, **SMALL).start()
        with lakelog.open(path) as beside:
            beside.put(lakelog.Message("orders", b"beside"))
        send(broker.namesrv, "orders", b"by a client")
        assert {bytes(each.body) for each in broker.messages("orders")} == {
            b"beside",
            b"by a client",
        }
    with EmbeddedBroker(path, **SMALL) as broker:
        assert len(broker.messages("orders")) == 2


def test_it_can_be_closed_twice_and_started_again(tmp_path: Path) -> None:
    broker = EmbeddedBroker(tmp_path / "store", **SMALL)
    with pytest.raises(RuntimeError, match="not running"):
        _ = broker.namesrv
    for _ in range(2):
        broker.start()
        address = Address.parse(broker.namesrv)
        with socket.create_connection((address.host, address.port)) as client:
            broker.close()
            assert client.recv(1) == b"", "connections are closed, and not left to a timeout"
        broker.close()
        assert not broker.is_well()


def test_a_forked_child_keeps_neither_port_nor_lock(tmp_path: Path) -> None:
    path = tmp_path / "store"
    release, stay = os.pipe()
    broker = EmbeddedBroker(path, **SMALL)
    broker.start()
    address = Address.parse(broker.namesrv)
    client = socket.create_connection((address.host, address.port))
    send(broker.namesrv, "orders", b"before")  # so that the server has seen the first connection
    child = os.fork()
    if not child:
        os.close(stay)
        os.read(release, 1)  # until the parent has seen all
        broker.close()
        os._exit(0)
    try:
        send(broker.namesrv, "orders", b"after")
        broker.close()
        with client:
            assert client.recv(1) == b"", "the child has a copy of the connection"
        with EmbeddedBroker(path, BrokerSettings(port=address.port), **SMALL) as again:
            assert [bytes(each.body) for each in again.messages("orders")] == [b"before", b"after"]
    finally:
        os.close(stay)
        _, status = os.waitpid(child, 0)
        os.close(release)
    assert os.waitstatus_to_exitcode(status) == 0


class _FailingSyncs(RealFileSystem):
    """Files, with those of the log in a list; their syncs can be made to fail."""

    def __init__(self) -> None:
        super().__init__()
        self.logs: list[FaultyFile] = []

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        file = super().open(path, write=write, create=create)
        if not (write and path.name.isdigit() and path.parent.name in {"commitlog", "tmp"}):
            return file
        self.logs.append(FaultyFile(file))
        return self.logs[-1]


def test_a_failed_store_ends_the_broker_and_a_new_start_mends_it(tmp_path: Path) -> None:
    files = _FailingSyncs()
    broker = EmbeddedBroker(tmp_path, files=files, writer="file", flush="group-commit", **SMALL)
    broker.start()
    try:
        address = broker.namesrv
        send(address, "Orders", b"kept")
        for each in files.logs:
            each.failing.add("sync")
        with pytest.raises((BrokerRefused, OSError)):
            send(address, "Orders", b"not acknowledged")
        failures: list[StoreFailed] = []

        def has_ended() -> bool:
            try:
                broker.is_well()
            except StoreFailed as error:
                failures.append(error)
            return bool(failures)

        until(has_ended)
        assert "check the disk, then reopen the store" in str(failures[0])

        def is_closed() -> bool:
            host, _, port = address.rpartition(":")
            try:
                socket.create_connection((host, int(port)), 1).close()
            except OSError:
                return True
            return False

        until(is_closed)
    finally:
        with pytest.raises(StoreFailed):
            broker.close()
    broker.start()
    try:
        send(broker.namesrv, "Orders", b"accepted")
        found = [bytes(each.body) for each in broker.messages("Orders")]
        assert (found[0], found[-1]) == (b"kept", b"accepted")
        broker.is_well()
    finally:
        broker.close()
