"""Who had the services dies: the next one has them, and queues and index end complete."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

import lakelog
from core.tests.processes.dying import die
from core.tests.store.workers import Worker, worker
from lakelog import dispatch
from lakelog.processes import membership, positions
from lakelog.store import joining, owner
from lakelog.store.open import open_to_serve
from lakelog_hash_index import filewriter
from lakelog_hash_index import owner as index
from lakelog_queues.dispatching import consumequeues
from lakelog_queues.files import simplequeue
from tests.processes.test_killed import verified
from tests.processes.words import QUEUES, TOPIC, body_of, queue_of
from tests.support.sampling import every
from tests.support.waiting import until

SMALL: Final[dict[str, Any]] = {"flush": "none", "segment_size_bytes": 1 << 16}
TAKING: Final = (joining, membership, owner, positions)
"""What a process goes through that is to have the services."""
COMPLETING: Final = (dispatch, consumequeues, simplequeue, index, filewriter)
"""What completes queues and index then."""


def put(holder: Worker, keys: list[str]) -> None:
    """Let it put messages with these keys."""
    given = [(key, queue_of(key), len(body_of(key))) for key in keys]
    message = f"lakelog.Message({TOPIC!r}, bytes(size), keys=key, queue_id=queue)"
    done = holder.ask(f"len(store.put_batch([{message} for key, queue, size in {given}]))")
    assert done == {"is_": len(keys)}


def test_the_last_keys_are_indexed_again_though_nothing_is_put(tmp_path: Path) -> None:
    """They are taken out first: a kill may have left them in part."""
    path = tmp_path / "store"
    with worker(path, **SMALL) as holder:
        assert holder.hear() == {"role": "owner"}
        put(holder, ["p-1", "p-2", "p-3"])
        assert holder.ask("store.wait_dispatched()") == {"is_": True}
        with lakelog.open(path, **SMALL) as store:
            assert store.role == "attach"
            holder.kill()
            until(lambda: store.role == "owner", "nobody has the services")
            assert store.dispatched_offset == store.max_offset
            assert len(list(store.query(TOPIC, "p-3"))) == 1
    verified(path)


def take_over(path: Path) -> None:
    """Have the services, give them back; others have the store open."""
    open_to_serve(path, arguments=SMALL).close()


def check_next(path: Path, keys: list[str]) -> None:
    """Whoever has them next finds all of it in queues and index."""
    with open_to_serve(path, arguments=SMALL) as store:
        assert store.recovery is not None
        assert store.recovery.clean, "somebody lives, and the log is recovered"
        assert store.dispatched_offset == store.max_offset
        assert [each.properties["KEYS"] for each in store.scan()] == keys
        bounds = [store.queue_bounds(TOPIC, queue) for queue in range(QUEUES)]
        assert sum(each[1] for each in bounds if each is not None) == len(keys)
        for key in keys[-3:]:
            assert [each.properties["KEYS"] for each in store.query(TOPIC, key)] == [key]


@pytest.mark.parametrize(
    "stride",
    [997, pytest.param(61, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])],
)
@pytest.mark.parametrize("modules", [TAKING, COMPLETING], ids=["taking", "completing"])
def test_a_death_at_any_step_of_taking_over(
    modules: tuple[Any, ...], stride: int, tmp_path: Path
) -> None:
    path, keys = tmp_path / "store", list[str]()
    with ExitStack() as stack:
        first = stack.enter_context(worker(path, **SMALL))
        assert first.hear() == {"role": "owner"}
        living = stack.enter_context(worker(path, attach={"take_over": False}, **SMALL))
        assert living.hear() == {"role": "attach"}
        first.kill()
        for step in every(stride):
            more = [f"p-{step + at}" for at in range(4)]
            put(living, more)
            keys += more
            lived = not die(step, modules, partial(take_over, path))
            check_next(path, keys)
            if lived:
                break
        assert step > 2 * stride, "hardly anybody died"
        living.ask("close")
    assert not (path / "abort").exists()
    verified(path)
