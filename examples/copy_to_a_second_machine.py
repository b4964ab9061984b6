"""How is a store copied to a second machine, and how does the second replace the first?

    python examples/copy_to_a_second_machine.py [CERTIFICATES]

runs both machines as process groups on this machine. On two machines, with their addresses:

    python examples/copy_to_a_second_machine.py first STORE 10.0.0.1:10912 10.0.0.2 [CERTIFICATES]
    python examples/copy_to_a_second_machine.py second STORE 10.0.0.1:10912 [CERTIFICATES]

``CERTIFICATES`` is a folder for TLS with ``certificate.pem`` and ``key.pem`` of the machine, and
``authority.pem``. core/docs/guides/replication.md has the procedures for failures.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import create_server
from typing import Any

import lakelog

SEGMENT_BYTES = 4 << 20


def tls(folder: str | None) -> dict[str, Any]:
    """The settings of TLS; none without a folder."""
    names = ("certificate", "key", "authority")
    return {each: str(Path(folder, f"{each}.pem")) for each in names} if folder else {}


def put_orders(path: str, address: str, second: str, folder: str | None = None) -> None:
    """On the first machine: put messages, each of which waits for its copy."""
    host, _, port = address.rpartition(":")
    section = {
        "host": host,
        "port": int(port),
        "allow": [second],  # any host that may connect can read the whole log
        "in_sync_replicas": 2,
        **tls(folder),
    }
    with lakelog.open(
        path,
        segment_size_bytes=SEGMENT_BYTES,
        replicator="rocketmq-ha",
        rocketmq_ha=section,
        on_late="return",  # the status is looked at below
    ) as store:
        number = 0
        while True:
            result = store.put(lakelog.Message("orders", b"order %d" % number))
            # PUT_OK: two durable copies. Messages before the first connection have only one.
            print(number, result.status.name, flush=True)
            number += 1
            time.sleep(0.01)


def replicating(path: str, address: str, folder: str | None = None) -> list[str]:
    """On the second machine: return the command that copies the log until it is stopped."""
    more = [f"rocketmq-ha.{name}={value}" for name, value in tls(folder).items()]
    more += [f"segment_size_bytes={SEGMENT_BYTES}", "rocketmq-ha.reconnect_interval_ms=100"]
    settings = [word for each in more for word in ("--set", each)]
    return [
        *(sys.executable, "-m", "lakelog", "replicate", path),
        *("--from", address, "--vouch", "received", "--counts", *settings),
    ]


@contextmanager
def machine(command: list[str], output: Path) -> Iterator[Callable[[int], None]]:
    """Start a process group; yields a function that sends it a signal and waits for its end."""
    with output.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True)

    def end(number: int) -> None:
        if process.poll() is None:
            os.killpg(process.pid, number)
        process.wait(60)

    try:
        yield end
    finally:
        end(signal.SIGKILL)


def main(base: Path, folder: str | None) -> None:
    """Copy, kill the first machine, and continue with the second one."""
    with create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    first, second = base / "first", base / "second"
    puts = base / "puts"
    more = [] if folder is None else [folder]
    putting = [sys.executable, __file__, "first", str(first), address, "127.0.0.1", *more]
    copying = replicating(str(second), address, folder)
    with machine(putting, puts) as end_first:
        wait_until(lambda: puts.stat().st_size > 0, puts)
        with machine(copying, base / "log") as end_second:
            wait_until(lambda: len(copied(puts)) >= 50, base / "log")
            end_first(signal.SIGKILL)  # the first machine fails
            end_second(signal.SIGTERM)  # the operator decides to promote the copy
    print(lakelog.promote(second))
    with lakelog.open(second) as store:
        there = {bytes(each.body) for each in store.scan()}
        lost = [number for number in copied(puts) if b"order %d" % number not in there]
        print(len(copied(puts)), "orders had two copies;", len(lost), "of them are lost")
        print(
            "the second machine takes puts:", store.put(lakelog.Message("orders", b"next")).status
        )
    if lost:
        raise SystemExit(1)


def copied(puts: Path) -> list[int]:
    """Return the numbers of the orders that were acknowledged with two copies."""
    lines = (line.split() for line in puts.read_text().splitlines())
    return [int(line[0]) for line in lines if line[1:] == ["PUT_OK"]]


def wait_until(is_so: Callable[[], bool], log: Path) -> None:
    """Wait for a condition; raises after two minutes, with the output of a machine."""
    deadline = time.monotonic() + 120
    while not is_so():
        if time.monotonic() > deadline:
            raise SystemExit(f"the machines did not copy within two minutes:\n{log.read_text()}")
        time.sleep(0.05)


if __name__ == "__main__":
    if sys.argv[1:2] == ["first"]:
        put_orders(*sys.argv[2:])
    elif sys.argv[1:2] == ["second"]:
        raise SystemExit(subprocess.run(replicating(*sys.argv[2:]), check=False).returncode)
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary), sys.argv[1] if sys.argv[1:] else None)
