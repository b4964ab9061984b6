"""One Java client: lakelog's broker beside RocketMQ's."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import psutil

from tests.bench.model import Column, Contender, Contest, Sample
from tests.broker.later import java, lakelogs_broker, rocketmqs_broker

_REAL: Final = "rocketmq"
_OURS: Final = "lakelog"
_WAYS: Final = ("sync_1", "sync_16", "sync_64", "async", "consume")


def _run(name: str, count: int, directory: Path) -> Sample:
    serving: Any = lakelogs_broker
    if name == _REAL:
        serving = partial(rocketmqs_broker, mappedFileSizeCommitLog=1 << 30)
    with serving(directory) as running:
        process = psutil.Process(running.process.pid)
        command = java("Speed", str(running.server), str(count), home=directory)
        before = process.cpu_times()
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        after, memory = process.cpu_times(), process.memory_info().rss
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"way"')]
    rates = {each["way"]: float(each["per_s"]) for each in lines}
    assert rates.keys() == set(_WAYS)
    cpu_s = after.user + after.system - before.user - before.system
    messages = (len(_WAYS) - 1) * count + count // 2
    return {**rates, "cpu_us": cpu_s / messages * 1e6, "rss_mb": memory / (1 << 20)}


class Broker:
    name = "broker"
    about = "messages of 1 KiB by one Java client 5.3.3, to and from a broker in another process"
    columns: Sequence[Column] = (
        *(Column(way, f"{way.replace('_', ' ')}, messages/s", ",.0f") for way in _WAYS),
        Column("cpu_us", "broker's CPU µs per message, all ways", ",.1f"),
        Column("rss_mb", "broker's RSS, MiB", ",.0f"),
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
                        (_REAL, "RocketMQ 5.3.3, ASYNC_FLUSH, heap 512 MiB, C1 compiler"),
                        (_OURS, "lakelog broker, default settings"),
                    )
                ],
            )
        ]
