"""lakelog's broker and RocketMQ's, with the same Java client."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import psutil

import lakelog
from tests.bench.model import LAKELOG, ROCKETMQ, Column, Contender, Contest, Sample, Suite
from tests.broker.later import java, lakelogs_broker, rocketmqs_broker
from tests.support.javaprogram import QUICK

_WAYS: Final = {
    "sync_1": "sync",
    "sync_16": "sync, 16 threads",
    "sync_64": "sync, 64 threads",
    "async": "async",
    "oneway": "one-way, until stored",
    "batch": "batches of 32",
    "topics": "64 topics, 16 threads",
    "connections": "200 connections",
    "push": "push consumption",
    "pop": "pop consumption",
}
_HEAP: Final = ("-Xmx512m", "-XX:MaxDirectMemorySize=256m")
_MEMORY: Final = {"VmRSS": "rss_mb", "RssAnon": "anon_mb", "RssFile": "file_mb"}


def _cpu_s(server: psutil.Process) -> float:
    times = server.cpu_times()
    return times.user + times.system


def _memory(server: psutil.Process) -> dict[str, float]:
    """Return its resident memory in MiB: total, private, and of shared mapped files."""
    lines = Path(f"/proc/{server.pid}/status").read_text().splitlines()
    found = dict(line.split(":", 1) for line in lines)
    return {at: int(found[name].split()[0]) / 1024 for name, at in _MEMORY.items()}


@contextmanager
def _client(server: str, count: int, home: Path) -> Iterator[subprocess.Popen[str]]:
    words = [word for word in java("Speed", server, str(count), home=home) if word not in QUICK]
    words[words.index("-Xmx128m")] = "-Xmx512m"
    with (
        (home / "client.out").open("ab") as errors,
        subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def _measure(server: psutil.Process, client: subprocess.Popen[str]) -> dict[str, float]:
    """Return rate and server CPU time of each way; the client waits before and after each."""
    assert client.stdin is not None
    assert client.stdout is not None
    found: dict[str, float] = {}
    before = 0.0
    for line in client.stdout:
        if line.startswith('{"begin"'):
            before = _cpu_s(server)
        elif line.startswith('{"way"'):
            done = json.loads(line)
            way, messages = done["way"], done["messages"]
            found[way] = messages / done["seconds"]
            found[f"{way}_cpu_us"] = (_cpu_s(server) - before) / messages * 1e6
        else:
            continue
        if found.keys() >= _WAYS.keys():
            return found
        client.stdin.write("\n")
        client.stdin.flush()
    raise EOFError(f"the client ended with code {client.wait()} after {list(found)}")


def _run(name: str, count: int, directory: Path) -> Sample:
    serving: Any = lakelogs_broker
    if name == ROCKETMQ:
        serving = partial(rocketmqs_broker, mappedFileSizeCommitLog=1 << 30, java_flags=_HEAP)
    else:
        lakelog.open(directory / "store").close()  # with the default sizes of files
    with serving(directory) as running:
        server = psutil.Process(running.process.pid)
        with _client(str(running.server), count, directory) as client:
            try:
                return _measure(server, client) | _memory(server)
            except EOFError as error:
                error.add_note((directory / "client.out").read_text()[-2000:])
                raise


def _contests(quick: bool) -> Sequence[Contest]:
    count = 3_000 if quick else 20_000
    notes = {
        ROCKETMQ: "RocketMQ 5.3.3, ASYNC_FLUSH, heap 512 MiB",
        LAKELOG: "lakelog broker, default settings",
    }
    contenders = [
        Contender(name, note, partial(_run, name, count), {ROCKETMQ: ROCKETMQ})
        for name, note in notes.items()
    ]
    return [Contest(f"{count:,} messages each way", contenders)]


BROKER: Final = Suite(
    "broker",
    "messages of 1 KiB by one Java client 5.3.3, to and from a broker in another process",
    (
        *(Column(way, f"{said}, messages/s") for way, said in _WAYS.items()),
        *(
            Column(f"{way}_cpu_us", f"{said}, broker's CPU µs/message", ",.1f")
            for way, said in _WAYS.items()
        ),
        Column("rss_mb", "broker's RSS, MiB"),
        Column("anon_mb", "of its own, MiB"),
        Column("file_mb", "of files, MiB"),
    ),
    _contests,
)
