"""The metrics of a store, read in the program and in any other process."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

import lakelog
from lakelog_telemetry import StoreCollector, metrics, plugin
from lakelog_telemetry.metrics import MetricsFollower, MetricsSettings, PortInUse
from lakelog_testing import PluginContract

DASHBOARD: Final = Path(__file__).parents[1] / "grafana" / "lakelog.json"
PROGRAM: Final = (sys.executable, "-m", "lakelog_cli.main")
Samples = dict[tuple[str, tuple[str, ...]], float]


class TestPlugin(PluginContract):
    """The plugin's hooks, settings and names are as they must be."""

    plugin = plugin


@pytest.fixture
def store(tmp_path: Path) -> Iterator[lakelog.Store]:
    """An open store with messages of two topics, and a group that lags."""
    with lakelog.open(tmp_path / "shop", segment_size_bytes="1MiB") as opened:
        for number in range(10):
            opened.put(lakelog.Message("orders", b"x" * number, queue_id=number % 2))
        opened.put(lakelog.Message("visits", b"a dog"))
        opened.wait_dispatched()
        with opened.consumer("billing", "orders", start="earliest") as consumer:
            assert consumer.poll(4)
            consumer.commit()
        yield opened


def collected(store: Path) -> Samples:
    registry = CollectorRegistry()
    collector = StoreCollector(store)
    registry.register(collector)
    try:
        return {
            (sample.name, tuple(v for k, v in sample.labels.items() if k != "store")): sample.value
            for metric in registry.collect()
            for sample in metric.samples
        }
    finally:
        collector.close()


def test_the_numbers_are_those_of_the_store(store: lakelog.Store) -> None:
    registry = CollectorRegistry()
    collector = StoreCollector(store.path)
    registry.register(collector)
    labels = {"store": "shop", "topic": "orders"}
    before = registry.get_sample_value("lakelog_messages_total", labels)
    store.put(lakelog.Message("orders", b"another"))
    store.wait_dispatched()
    assert registry.get_sample_value("lakelog_messages_total", labels) == (before or 0) + 1
    collector.close()
    found = collected(store.path)
    assert found["lakelog_up", ()] == found["lakelog_healthy", ()] == 1
    assert found["lakelog_records_total", ()] == 12
    assert found["lakelog_offset_bytes", ("appended",)] == store.max_offset
    assert found["lakelog_lag_bytes", ("dispatch",)] == 0
    assert found["lakelog_messages_total", ("orders",)] == 11
    assert found["lakelog_messages_total", ("visits",)] == 1
    assert found["lakelog_group_lag_messages", ("billing", "orders")] == 7


def test_a_closed_store_is_down_and_still_has_messages(store: lakelog.Store) -> None:
    store.close()
    found = collected(store.path)
    assert found["lakelog_up", ()] == 0
    assert found["lakelog_messages_total", ("orders",)] == 10


def test_a_reader_of_what_cannot_be_read_is_closed(store: lakelog.Store) -> None:
    collector = StoreCollector(store.path)
    list(collector.collect())
    reader = collector._reader
    assert reader is not None
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        (Path(store.path) / "config" / name).write_bytes(b"{")
    names = {each.name for each in collector.collect()}
    assert "lakelog_messages" not in names
    with pytest.raises(lakelog.errors.StoreClosed):
        reader.groups()
    collector.close()


def test_a_missing_store_is_down(tmp_path: Path) -> None:
    assert collected(tmp_path / "nothing") == {("lakelog_up", ()): 0}


def test_the_follower_serves_and_stops(store: lakelog.Store) -> None:
    follower = MetricsFollower([store.path], MetricsSettings(port=0))
    follower.start()
    try:
        text = _read(follower.port)
        with pytest.raises(PortInUse, match="cannot be bound"):
            MetricsFollower([store.path], MetricsSettings(port=follower.port)).start()
    finally:
        follower.stop()
    names = {each.name for each in text_string_to_metric_families(text)}
    assert {"lakelog_up", "lakelog_messages", "lakelog_disk_used_ratio"} <= names


def test_the_command_serves_until_sigterm(store: lakelog.Store) -> None:
    command = [*PROGRAM, "metrics", str(store.path), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        address = re.search(r":(\d+)/metrics", running.stderr.readline())
        assert address is not None
        port = int(address[1])
        assert 'lakelog_records_total{store="shop"} 11.0' in _read(port)
        running.send_signal(signal.SIGTERM)
        assert running.wait() == 0


def test_the_command_refuses_a_path_without_a_store(tmp_path: Path) -> None:
    command = [*PROGRAM, "metrics", str(tmp_path / "typo"), "--once"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "")
    assert "is the path right?" in done.stderr


def test_the_dashboard_asks_for_metrics_that_exist(store: lakelog.Store) -> None:
    dashboard: dict[str, Any] = json.loads(DASHBOARD.read_text())
    exist = {name for name, _ in collected(store.path)}
    asked = set()
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            asked |= set(re.findall(r"lakelog_\w+", target["expr"]))
    assert asked <= exist
    assert len(asked) >= 10
    places = [(each["gridPos"]["x"], each["gridPos"]["y"]) for each in dashboard["panels"]]
    assert len(set(places)) == len(places) == len({each["id"] for each in dashboard["panels"]})


def _read(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        text: str = answer.read().decode()
    return text


def test_silent_connections_keep_no_scrape_away(
    store: lakelog.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "_MOST_CONNECTIONS", 4)
    follower = MetricsFollower([Path(store.path)], MetricsSettings(port=0))
    follower.start()
    try:
        with ExitStack() as stack:
            address = "127.0.0.1", follower.port
            silent = [stack.enter_context(socket.create_connection(address)) for _ in range(20)]
            with urllib.request.urlopen(f"http://127.0.0.1:{follower.port}/metrics") as answer:
                assert b"lakelog_up" in answer.read()
            assert silent[0].recv(1) == b""
    finally:
        follower.stop()
