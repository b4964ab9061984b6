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
from tests.bench.model import Column, Contender, Contest, Sample
from tests.broker.later import java, lakelogs_broker, rocketmqs_broker
from tests.support.javaprogram import QUICK

_REAL: Final = "rocketmq"
_OURS: Final = "lakelog"
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
_KIB_PER_MIB: Final = 1024


class _Server:
    """The process of a broker."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)

    def cpu_s(self) -> float:
        """Return its CPU seconds so far, of all threads."""
        times = self._process.cpu_times()
        return times.user + times.system

    def memory(self) -> dict[str, float]:
        """Return its resident memory in MiB: total, private, and of shared mapped files."""
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        found = dict(line.split(":", 1) for line in lines)
        return {at: int(found[name].split()[0]) / _KIB_PER_MIB for name, at in _MEMORY.items()}


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


def _measure(server: _Server, client: subprocess.Popen[str]) -> dict[str, float]:
    """Return rate and server CPU time of each way; the client waits before and after each."""
    assert client.stdin is not None
    assert client.stdout is not None
    found: dict[str, float] = {}
    before = 0.0
    for line in client.stdout:
        if line.startswith('{"begin"'):
            before = server.cpu_s()
        elif line.startswith('{"way"'):
            done = json.loads(line)
            way, messages = done["way"], done["messages"]
            found[way] = messages / done["seconds"]
            found[f"{way}_cpu_us"] = (server.cpu_s() - before) / messages * 1e6
        else:
            continue
        if found.keys() >= _WAYS.keys():
            return found
        client.stdin.write("\n")
        client.stdin.flush()
    raise EOFError(f"the client ended with code {client.wait()} after {list(found)}")


def _run(name: str, count: int, directory: Path) -> Sample:
    serving: Any = lakelogs_broker
    if name == _REAL:
        serving = partial(rocketmqs_broker, mappedFileSizeCommitLog=1 << 30, java_flags=_HEAP)
    else:
        lakelog.open(directory / "store").close()  # with the default sizes of files
    with serving(directory) as running:
        server = _Server(running.process.pid)
        with _client(str(running.server), count, directory) as client:
            try:
                return _measure(server, client) | server.memory()
            except EOFError as error:
                error.add_note((directory / "client.out").read_text()[-2000:])
                raise


class Broker:
    name = "broker"
    about = "messages of 1 KiB by one Java client 5.3.3, to and from a broker in another process"
    columns: Sequence[Column] = (
        *(Column(way, f"{said}, messages/s", ",.0f") for way, said in _WAYS.items()),
        *(
            Column(f"{way}_cpu_us", f"{said}, broker's CPU µs/message", ",.1f")
            for way, said in _WAYS.items()
        ),
        Column("rss_mb", "broker's RSS, MiB", ",.0f"),
        Column("anon_mb", "of its own, MiB", ",.0f"),
        Column("file_mb", "of files, MiB", ",.0f"),
    )
    lower_is_better = False

    def contests(self, *, quick: bool) -> Sequence[Contest]:
        count = 3_000 if quick else 20_000
        return [
            Contest(
                f"{count:,} messages each way",
                [
                    Contender(name, note, partial(_run, name, count), {_REAL: _REAL})
                    for name, note in (
                        (_REAL, "RocketMQ 5.3.3, ASYNC_FLUSH, heap 512 MiB"),
                        (_OURS, "lakelog broker, default settings"),
                    )
                ],
            )
        ]
