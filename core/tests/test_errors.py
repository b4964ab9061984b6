"""Errors go to other processes whole: a pool of workers hands them to who waits for a result."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from lakelog import errors
from lakelog.errors import LakelogError
from lakelog.files.filesystem import unreadable
from lakelog.status import PutStatus


def refused() -> errors.PutRefused:
    error = errors.PutRefused(PutStatus.MESSAGE_ILLEGAL, "too long")
    error.accepted = ()
    return error


SAMPLES = [
    errors.SettingsError("it is no number", key="a.b", source="lakelog.toml"),
    errors.PluginError("it has no hook", plugin="p", distribution="d 1"),
    errors.StoreError("not there", path=Path("/a")),
    errors.StoreLocked("owned", path=Path("/a"), owner_pid=7),
    errors.BadSegment("short", path="/a", offset=3, expected=4, found=5),
    errors.DispatchStopped("it failed", dispatcher="d", offset=9, path="/a"),
    errors.CorruptRecord("magic", offset=1, expected=2, found=3, path="/a"),
    errors.OffsetOutOfRange("behind the end", offset=5),
    errors.IllegalMessage("no topic", status=PutStatus.MESSAGE_ILLEGAL),
    errors.ReadFailed("cannot read: no luck", path="/a", error=OSError(5, "cannot read: no luck")),
    errors.ThreadNotStarted("lakelog-reput", "can't start new thread"),
    refused(),
]


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
def test_words_and_parts_are_the_same(error: LakelogError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_a_read_that_fails_is_an_error_of_the_operating_system_too() -> None:
    error: OSError = unreadable(Path("/a"), OSError(5, "Input/output error", "/a"))
    assert (error.errno, error.strerror, error.filename) == (5, "Input/output error", "/a")
    assert str(error).startswith("/a: it cannot be read (Input/output error); ")


def _kinds(kind: type[LakelogError] = LakelogError) -> Iterator[type[LakelogError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from _kinds(each)


@pytest.mark.parametrize("kind", sorted(set(_kinds()), key=str), ids=lambda kind: kind.__name__)
def test_every_kind_can_go(kind: type[LakelogError]) -> None:
    again = pickle.loads(pickle.dumps(kind.__new__(kind, "what is wrong")))
    assert type(again) is kind
    assert str(again) == "what is wrong"


def fail() -> None:
    raise errors.StoreLocked("owned", path="/a", owner_pid=7)


def test_a_pool_hands_them_on() -> None:
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        with pytest.raises(errors.StoreLocked, match="/a: owned") as caught:
            pool.submit(fail).result(60)
        assert caught.value.owner_pid == 7
