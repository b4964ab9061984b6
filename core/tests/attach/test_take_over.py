"""A process whose owner dies becomes the owner, and its puts go on as if nothing had been."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from pathlib import Path
from queue import Queue

import pytest

from core.tests.attach.support import AnHeir, a_program, an_owned_hub, an_owner, offsets_of, until
from lakelog import Message
from lakelog.attach.producer import connect
from lakelog.errors import PutRefused, StoreLocked
from lakelog.testing.crash.opener import owned_by
from lakelog.testing.signals import hold


@pytest.mark.parametrize("listen", [True, False])
def test_a_process_takes_over(tmp_path: Path, listen: bool) -> None:
    settled = list[int]()
    with ExitStack() as stack:

        def take_over() -> AnHeir | None:
            try:
                store, hub = stack.enter_context(an_owned_hub(tmp_path, {"listen": listen}))
            except StoreLocked:
                return None  # its connections go before its lock
            assert store._owned is not None
            link, appender = hub.in_process(), store._owned.appender
            return AnHeir(link, appender, offsets_of(store), lambda: settled.append(1))

        owner = stack.enter_context(an_owner(tmp_path))
        producer = connect(tmp_path, on_lost=take_over)
        messages = [Message("t", b"%d" % at, queue_id=0) for at in range(400)]
        offsets = [producer.put(each).queue_offset for each in messages[:10]]
        futures = [producer.put_async(each) for each in messages[10:100]]
        owner.kill()
        futures += [producer.put_async(each) for each in messages[100:200]]
        offsets += [each.result(20).queue_offset for each in futures]
        batch = producer.put_batch_async(messages[200:300])
        offsets += [each.queue_offset for each in batch.result(20)]
        until(lambda: settled == [1])
        offsets += [producer.put(each).queue_offset for each in messages[300:310]]
        offsets += [each.queue_offset for each in producer.put_batch(messages[310:320])]
        offsets += [
            each.queue_offset for each in producer.put_batch_async(messages[320:330]).result()
        ]
        futures = [producer.put_async(each) for each in messages[330:]]
        offsets += [each.result(20).queue_offset for each in futures]
        assert offsets == [*range(400)]
        assert producer.flush() > 0
        producer.close()
        assert settled == [1]


def test_a_callback_may_put_while_its_process_becomes_the_owner(tmp_path: Path) -> None:
    """Of the last put that was open: nothing else is answered that would tell it to go on."""
    with ExitStack() as stack:

        def take_over() -> AnHeir | None:
            try:
                store, hub = stack.enter_context(an_owned_hub(tmp_path))
            except StoreLocked:
                return None
            return AnHeir(
                hub.in_process(), owned_by(store).appender, offsets_of(store), lambda: None
            )

        owner = stack.enter_context(an_owner(tmp_path))
        producer = connect(tmp_path, on_lost=take_over)
        assert producer.put(Message("t", b"0", queue_id=0)).queue_offset == 0
        hold(owner.process.pid)
        again = Queue[int]()
        first = producer.put_async(Message("t", b"1", queue_id=0))
        first.add_done_callback(
            lambda _: again.put(producer.put(Message("t", b"2", queue_id=0)).queue_offset)
        )
        owner.kill()
        assert first.result(20).queue_offset == 1
        assert again.get(timeout=20) == 2
        producer.close()


def test_whoever_cannot_take_over_waits_for_another(tmp_path: Path) -> None:
    asked = list[int]()
    with an_owner(tmp_path) as owner:
        producer = connect(tmp_path, on_lost=lambda: asked.append(1))
        assert producer.put(Message("t", b"x")).physical_offset == 0
        owner.kill()
        future = producer.put_async(Message("t", b"y"))
        until(lambda: len(asked) > 2)
    with an_owned_hub(tmp_path):
        assert future.result(10).physical_offset > 0
        producer.close()


FORKING = """
import os, sys, time
from pathlib import Path
from core.tests.attach.support import an_owned_hub
with an_owned_hub(Path(sys.argv[1])) as (store, hub):
    child = os.fork()
    if not child:
        sys.stdout.write(f"{os.getpid()}\\n")
        sys.stdout.flush()
        time.sleep(60)
        os._exit(0)
    sys.stdin.read()
"""


def test_a_forked_child_does_not_hide_the_death_of_an_owner(tmp_path: Path) -> None:

    with a_program(FORKING, tmp_path) as owner:
        child = int(owner.line())
        try:
            producer = connect(tmp_path)
            assert producer.put(Message("t", b"x")).size > 0
            owner.kill()
            with an_owned_hub(tmp_path):
                assert producer.put(Message("t", b"y")).physical_offset > 0
                producer.close()
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_producer_is_no_use_in_a_forked_child(tmp_path: Path) -> None:
    with an_owned_hub(tmp_path):
        producer = connect(tmp_path)
        producer.forked()
        with pytest.raises(PutRefused, match="was forked"):
            producer.put(Message("t", b"x"))
