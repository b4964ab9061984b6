"""How do messages of RocketMQ's clients land in an Iceberg table, without RocketMQ and Java?

    python examples/broker_to_iceberg.py

starts a broker that lands the messages of clients, sends orders, and queries the table with SQL.
Its producer implements the needed part of RocketMQ's remoting protocol, so that the example needs
no client library; any RocketMQ client can be used with the name server's address.
"""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

from lakelog_lake.sinks.iceberg import sqlite_catalog

TABLE = "shop.orders"
ORDERS = 300
SEND_MESSAGE = 310
LENGTHS = struct.Struct(">ii")


class Producer:
    """Sends messages on one connection, each acknowledged before the next one."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._stream = self._socket.makefile("rb")

    def send(self, topic: str, body: bytes, queue_id: int) -> None:
        """Send a message; raises ``RuntimeError`` if the broker refuses it."""
        now_ms = str(time.time_ns() // 1_000_000)
        fields = {"a": "example", "b": topic, "c": "TBW102", "d": "4", "e": str(queue_id)}
        fields |= {"f": "0", "g": now_ms, "h": "0", "i": "", "j": "0"}
        head = {"code": SEND_MESSAGE, "language": "PYTHON", "version": 479, "opaque": 1, "flag": 0}
        header = json.dumps({**head, "extFields": fields}).encode()
        length = 4 + len(header) + len(body)
        self._socket.sendall(LENGTHS.pack(length, len(header)) + header + body)
        length, header_length = LENGTHS.unpack(self._stream.read(LENGTHS.size))
        answer = json.loads(self._stream.read(length - 4)[:header_length])
        if answer["code"]:
            raise RuntimeError(answer["remark"])

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()
        self._socket.close()


@contextmanager
def broker(base: Path) -> Iterator[int]:
    """Run ``lakelog broker --to`` on a free port; yields the port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    command = [sys.executable, "-m", "lakelog", "broker", str(base / "store"), "--port", str(port)]
    options = ["--table", TABLE, "--engine", "processes"]  # without Spark
    command += ["--to", f"iceberg:{base / 'lake'}", "--set", f"lake.options={json.dumps(options)}"]
    command += ["--set", "segment_size_bytes=16MiB"]
    with (base / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield port
    finally:
        process.terminate()
        process.wait(60)


def connected(port: int) -> Producer:
    """Return a connected producer; waits until the broker accepts connections."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return Producer(port)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def rows(lake: Path) -> Any:
    """Return the rows of the table, as Arrow; ``None`` before the first commit."""
    try:
        return sqlite_catalog(lake).load_table(TABLE).scan().to_arrow()
    except (NoSuchNamespaceError, NoSuchTableError):
        return None


def main(base: Path) -> None:
    """Send orders, wait until all are in the table, and query it."""
    with broker(base) as port:
        producer = connected(port)
        for number in range(ORDERS):
            producer.send("orders", b'{"order": %d}' % number, number % 4)
        producer.close()
        deadline = time.monotonic() + 120
        while (orders := rows(base / "lake")) is None or orders.num_rows < ORDERS:
            if time.monotonic() > deadline:
                raise SystemExit(f"the table does not follow:\n{(base / 'log').read_text()}")
            time.sleep(0.2)
    query = """
        select topic, queue_id, count(*) as messages, count(distinct physical_offset) as places
        from orders group by all order by all
    """
    print(duckdb.sql(query))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(temporary))
