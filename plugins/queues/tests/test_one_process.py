"""Objects of an open store are neither pickled nor copied."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

import lakelog
from core.tests.store.support import open_small
from lakelog import Message

COPIES: Final[list[Callable[[Any], object]]] = [pickle.dumps, copy.copy, copy.deepcopy]
MATCH: Final = r"^a {} belongs to its process: .*lakelog.open\(path\) there$"


@pytest.mark.both_ways
def test_what_belongs_to_a_process_says_so(tmp_path: Path) -> None:
    with open_small(tmp_path, plugins=None) as store:
        message = Message("t", b"x", queue_id=0)
        with store.subscribe("g", "t") as member:
            objects = [
                store,
                store.put_async(message),
                store.put_batch_async([message]),
                store.producer("t"),
                store.consumer("g", "t"),
                member,
            ]
            for each in objects:
                for make in COPIES:
                    match = MATCH.format(type(each).__name__)
                    with pytest.raises(lakelog.LakelogError, match=match) as refused:
                        make(each)
                    assert isinstance(refused.value, TypeError)
            with pytest.raises(TypeError, match="a Store belongs to its process"):
                multiprocessing.get_context("spawn").Process(target=print, args=(store,)).start()
        store.put(message)
