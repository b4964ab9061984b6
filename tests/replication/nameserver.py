"""Runs a real name server of RocketMQ 5.3.3."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lakelog_replication.address import Address
from tests.replication.broker import eventually
from tests.replication.masterbroker import free_ports, jars, quick

_LOGBACK = Path(__file__).parents[1] / "oracle" / "resources" / "logback.xml"


@contextmanager
def name_server(home: Path) -> Iterator[Address]:
    """Run a name server, killed at the end; yields its address."""
    address = Address("127.0.0.1", free_ports(1)[0])
    home.mkdir(parents=True)
    conf = home / "namesrv.conf"
    conf.write_text(f"listenPort={address.port}\nbindAddress={address.host}\n")
    command = [
        *("java", "-Xmx128m", *quick(), f"-Duser.home={home}"),
        *(f"-Drocketmq.home.dir={home}", f"-Drmq.logback.configurationFile={_LOGBACK}"),
        *("-cp", os.fspath(jars() / "*"), "org.apache.rocketmq.namesrv.NamesrvStartup"),
        *("-c", str(conf)),
    ]
    with (home / "out").open("ab") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL)

    def answers() -> bool:
        assert process.poll() is None, (home / "out").read_text(errors="replace")[-2000:]
        try:
            socket.create_connection((address.host, address.port), 1).close()
        except OSError:
            return False
        return True

    try:
        eventually(answers)
        yield address
    finally:
        process.kill()
        process.wait()
