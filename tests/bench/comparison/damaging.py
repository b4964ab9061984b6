"""Damages files after a clean stop; records the store's reports and the messages that it reads."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.bench.comparison.running import Found, Putting, read
from tests.bench.comparison.stores import Store
from tests.bench.model import NothingPutError

MESSAGES: Final = 2000
_PAGE_BYTES: Final = 4096


def damage(store: Store, scratch: Path, flips: int, seed: int = 1) -> dict[str, Any]:
    """Flip a byte at random places, zero the last page, cut off the second half; each in a copy."""
    whole = scratch / "whole"
    with Putting.started(store, whole, count=MESSAGES) as putting:
        putting.wait(lambda: putting.has_ended)
        if putting.process.wait() or len(putting.acks) != MESSAGES:
            raise NothingPutError(f"{len(putting.acks)} messages were put: {putting.death()}")
    file, used = store.file_to_damage(whole)
    choose = random.Random(seed)
    last_page = (used - 1) // _PAGE_BYTES * _PAGE_BYTES

    def trial(spoil: Callable[[Path], None]) -> Found:
        copy = scratch / "copy"
        subprocess.run(["cp", "-a", "--sparse=always", whole, copy], check=True)
        spoil(copy / file.relative_to(whole))
        found = read(store, copy)
        subprocess.run(["rm", "-r", copy], check=True)
        return found

    return {
        "file": file.name,
        "untouched": _summary([trial(Path.touch)]),
        "flipped": _summary([trial(_flip(choose.randrange(used))) for _ in range(flips)]),
        "zeroed": _summary([trial(lambda path: _write(path, last_page, bytes(_PAGE_BYTES)))]),
        "truncated": _summary([trial(lambda path: os.truncate(path, used // 2))]),
    }


def _flip(at: int) -> Callable[[Path], None]:
    def spoil(path: Path) -> None:
        _write(path, at, bytes([path.read_bytes()[at] ^ 0xFF]))

    return spoil


def _write(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data[: path.stat().st_size - at])


def _summary(trials: list[Found]) -> dict[str, Any]:
    """Count reported trials, messages read whole, and messages with other bytes."""
    whole = [len(set(each.numbers())) for each in trials]
    return {
        "trials": len(trials),
        "told": sum(bool(each.told) for each in trials),
        "silent_losses": sum(
            not each.told and count < MESSAGES for each, count in zip(trials, whole, strict=True)
        ),
        "unopened": sum(each.open_ms is None for each in trials),
        "fewest_read": min(whole),
        "most_read": max(whole),
        "wrong": sum(each.wrong for each in trials),
        "words": next((each.told[0][:200] for each in trials if each.told), None),
        "logged": next((each.logged[:200] for each in trials if each.logged), None),
    }
