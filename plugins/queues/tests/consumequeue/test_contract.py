"""The queues keep the contract of dispatchers: of an owner, after a crash, and of a reader."""

from __future__ import annotations

from pathlib import Path

from lakelog.interfaces import Dispatcher, QueueReader
from lakelog.registry import check_object
from lakelog_queues.dispatching.consumequeues import ConsumeQueues
from lakelog_testing import DispatcherContract
from plugins.queues.tests.consumequeue.support import contents, queues


class TestOwned(DispatcherContract):
    def make(self, path: Path) -> ConsumeQueues:
        return queues(path)

    def contents(self, dispatcher: Dispatcher) -> object:
        assert isinstance(dispatcher, ConsumeQueues)
        return contents(dispatcher)


class TestAfterACrash(TestOwned):
    def make(self, path: Path) -> ConsumeQueues:
        return queues(path, clean=False)


def test_they_can_be_read(tmp_path: Path) -> None:
    assert check_object(queues(tmp_path), QueueReader) is None
