"""Name servers and brokers that answer what a test says."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakelog.errors import StoreError
from lakelog.files.filesystem import RealFileSystem
from lakelog_replication.multisource import (
    listed_masters,
    master_brokers,
    read_masters,
    source_of,
    write_masters,
)
from lakelog_replication.remoting import BrokerRefused
from lakelog_replication.settings import Address, SourceMaster
from plugins.replication.tests.brokers import answering, response

# As fastjson of RocketMQ 5.3.3 writes it: ids of brokers are keys without quotes.
CLUSTER = (
    b'{"brokerAddrTable":{"a":{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},'
    b'"brokerName":"a","cluster":"one","enableActingMaster":false},"b":{"brokerAddrs":'
    b'{0:"10.0.1.1:10911"},"brokerName":"b","cluster":"two"},"c":{"brokerAddrs":'
    b'{1:"10.0.2.1:10911"},"brokerName":"c","cluster":"one"}},'
    b'"clusterAddrTable":{"one":["a","c"],"two":["b"]}}'
)


def test_masters_are_the_brokers_with_the_id_0() -> None:
    asked: list[dict[str, object]] = []
    with answering(response(CLUSTER), asked) as server:
        found = master_brokers(server)
    assert found == {"a": Address("10.0.0.1", 10911), "b": Address("10.0.1.1", 10911)}
    assert asked[0]["code"] == 106
    with answering(response(CLUSTER)) as server:
        assert list(master_brokers(server, "two")) == ["b"]


def test_what_is_no_list_of_brokers_is_one_error() -> None:
    for body in (
        *(b"", b"[]", b"<html>", b'{"brokerAddrTable":[]}', b'{"brokerAddrTable":{"a":{}}}'),
        b'{"brokerAddrTable":{"a":{"brokerAddrs":{0:"here"},"cluster":"c"}}}',
        b'{"brokerAddrTable":{"a":{"brokerAddrs":{0:5},"cluster":"c"}}}',
    ):
        with answering(response(body)) as server, pytest.raises(BrokerRefused, match="no list"):
            master_brokers(server)


def test_a_master_says_where_slaves_connect() -> None:
    with answering(response(b"brokerIP2=10.0.0.9\nhaListenPort=10912\n")) as broker:
        found = source_of("a", broker)
    assert found == SourceMaster("a", Address("10.0.0.9", 10912), broker)
    with answering(response(b"haListenPort=10912\n")) as broker:
        assert source_of("a", broker).slaves == Address("127.0.0.1", 10912)
    with answering(response(b"a=b\n")) as broker, pytest.raises(BrokerRefused, match="slaves"):
        source_of("a", broker)


def test_a_name_that_is_no_folder_of_its_own_is_refused() -> None:
    for name in ("", ".", "..", "../a", "a/b", "lakelog", "-a", "a" * 51):
        with pytest.raises(ValueError, match="cannot name the folder"):
            source_of(name, Address("127.0.0.1", 1))


def test_the_next_name_server_is_asked_and_each_trouble_told() -> None:
    troubles: list[str] = []
    body = b'{"brokerAddrTable":{"a":{"brokerAddrs":{0:"127.0.0.1:%d"},"cluster":"c"}}}'
    with (
        answering(response(code=1)) as away,
        answering(response(b"haListenPort=7\n")) as broker,
        answering(response(body % broker.port)) as server,
    ):
        found = listed_masters([away, server], "", troubles.append)
    assert found == [SourceMaster("a", Address("127.0.0.1", 7), broker)]
    assert len(troubles) == 1
    assert str(away) in troubles[0]


def test_a_master_is_read_from_its_text() -> None:
    for text, name, places in (
        ("10.0.0.1:10912", "10.0.0.1_10912", "10.0.0.1:10912"),
        ("[::1]:10912", "1_10912", "[::1]:10912"),
        ("broker-a=h:1,h:2", "broker-a", "h:1,h:2"),
    ):
        found = SourceMaster.parse(text)
        assert (found.name, found.places) == (name, places)
        assert SourceMaster.parse(str(found)) == found
    for text in ("", "a=", "=h:1", "a=h", "a=h:1,", "a=h:1,h", "a/b=h:1"):
        with pytest.raises(ValueError, match=r"address|cannot name"):
            SourceMaster.parse(text)


def test_masters_are_remembered_as_long_as_their_copies_exist(tmp_path: Path) -> None:
    files, masters = RealFileSystem(), [SourceMaster.parse(f"{each}=h:1,h:2") for each in "ab"]
    (tmp_path / "lakelog").mkdir()
    (tmp_path / "a").mkdir()
    assert read_masters(files, tmp_path) == []
    write_masters(files, tmp_path, masters)
    assert read_masters(files, tmp_path) == masters[:1]
    for damaged in (b"{", b"[]", b'{"version": 2}', b'{"version": 1, "masters": {"a": "h"}}'):
        (tmp_path / "lakelog" / "masters.json").write_bytes(damaged)
        with pytest.raises(StoreError, match="damaged"):
            read_masters(files, tmp_path)
