"""Memory of a ring: nobody can take it away under the owner's hands."""

from __future__ import annotations

import os

import pytest

from core.tests.ring.support import a_memory, a_rig
from core.tests.ring.test_through_the_ring import message
from lakelog.errors import RingNonsense
from lakelog.ring.layout import AT_MAGIC
from lakelog.ring.memory import LEAST_BYTES, make_memory, map_memory
from lakelog.ring.writing import RingWriter


def test_its_length_stays() -> None:
    fd = make_memory(1 << 20)
    try:
        for size in (0, 1 << 21):
            with pytest.raises(PermissionError):
                os.ftruncate(fd, size)
        assert os.fstat(fd).st_blocks * 512 >= 1 << 20, "not allocated"
        assert os.get_inheritable(fd) is False
    finally:
        os.close(fd)


@pytest.mark.parametrize("size", [0, 4096, LEAST_BYTES - 128, LEAST_BYTES + 1])
def test_sizes_that_cannot_be(size: int) -> None:
    with pytest.raises(ValueError, match="cannot be"):
        make_memory(size)


def test_what_was_not_sealed_is_not_mapped() -> None:
    fd = os.memfd_create("other", os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, 1 << 20)
        with pytest.raises(RingNonsense, match="seals"):
            map_memory(fd, 1 << 20)
    finally:
        os.close(fd)


def test_another_size_than_was_said() -> None:
    fd = make_memory(1 << 20)
    try:
        with pytest.raises(RingNonsense, match="bytes"):
            map_memory(fd, 1 << 21)
    finally:
        os.close(fd)


def test_no_ring_and_another_version() -> None:
    memory = a_memory()
    memory.cast("Q")[AT_MAGIC] += 1
    with pytest.raises(RingNonsense, match="version"):
        RingWriter(memory)


def test_it_outlives_the_descriptor_and_the_process_that_made_it() -> None:
    rig = a_rig()
    pid = os.fork()
    if not pid:
        rig.offer([message()])
        os._exit(0)
    os.waitpid(pid, 0)
    (taken,) = rig.take()
    assert taken.count == 1
