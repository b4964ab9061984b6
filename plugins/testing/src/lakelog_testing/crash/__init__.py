"""Crashes a store thousands of times, and checks that recovery keeps every guarantee.

For authors of writers, flush strategies and dispatchers, and for lakelog itself::

    from lakelog_testing.crash import CrashPlan, simulate
    import my_package.plugin

    def test_nothing_promised_is_lost(tmp_path):
        plan = CrashPlan(writer="file", flush="mine", plugins=[my_package.plugin])
        outcome = simulate(plan, images=1000, seed=1, keep=tmp_path)
        assert not outcome.violations, outcome

A thousand images take 15 to 30 seconds of CPU time. ``str(outcome)`` describes each violation, and
the call that reproduces it. ``keep`` receives the image as a directory, for ``lakelog.open`` or
``lakelog recover --dry-run``. Set ``put_is_durable=False`` if ``PUT_OK`` guarantees nothing under
your strategy. ``failing_sync=True`` lets one sync of each run fail. Prove that your test can fail:
plant a bug, as in ``examples/crash_test_a_strategy.py``.

How it works. A seeded workload puts messages of many sizes, topics, queues and keys: single, in
batches, asynchronously, and from several threads. It flushes log and queues, removes topics, closes
and reopens. In most runs, other threads append and roll the log during its commits and syncs. For
that, :mod:`lakelog_testing.crash.workload` stops the committing or syncing thread until the log
has rolled. It does so before a commit, between commit and sync, at each write and sync of a file,
and after the sync.

All of that uses :class:`SimFileSystem` in place of ``RealFileSystem``: the files are real, and it
also tracks the durable state. At every sync, and at every acknowledgement, a crash point records
the states that a crash could leave, and the guarantees given by then. Each point yields images:
directories as a crash could leave them. Every clean close is such a point too, and is always tried.
``points_per_run=0`` tries nothing else, which finds races soonest.

Each image is written out, opened like :func:`lakelog.open`, and checked:

- Every guaranteed message exists, at its place and unaltered.
- Nothing exists that was never put, or that an earlier recovery removed.
- Every record is at its number in its queue, and is found by its key. No queue exceeds the log.
  Removed queues do not return.
- Whole records that recovery removed from the log are in ``lakelog/quarantine``.
- The store accepts puts again.

On some images, ``lakelog.recover`` or ``lakelog.repair`` runs before they are opened.

A sample of the images is crashed a second time: recovery and a few more puts run over a
:class:`SimFileSystem`, which is crashed again at any point. Some of these follow a kill that the
machine survived: bytes that were not durable by then still are not.

Guarantees. A ``PUT_OK`` under a flush strategy that waits is durable, unless the message has
``wait_store_ok=False``. Under ``none`` and ``timed``, the bytes before the position ``flushed`` are
durable. After a close, everything is.

The model, deliberately harsher than most disks:

- A page of 4,096 bytes that changed since the last sync may have any state seen since then,
  independently of other pages. It may be torn, with each sector of 512 bytes from another of these
  states. Stores through a map make no system call. They are found by comparing files at every call
  that changes something, at every sync and at every acknowledgement.
- A sync covers the content of the file when the sync began, and nothing later.
- The length of a file may be any that it had since the last sync. Truncated content does not return
  with a later length.
- A change of a name (create, rename, exchange, unlink, mkdir, rmdir) becomes durable by a sync of
  its directory only, not by a sync of the file. It is atomic, even for a rename between two
  directories. Changes of the same name occur in order, all others in any order.
- A sync of a directory includes the earlier changes of other directories that it depends on.

Not in the model: sectors torn internally, syncs that report false success, bit rot, and further
effects of a crash on a file system without a journal.

Everything is determined by the seed, except the order of threads that are not stopped for a roll.
Names of index files and store times also depend on the clock. An image that violates a guarantee
can be kept (``keep=``) as a directory. ``python -m lakelog_testing.crash --help`` describes long
runs.
"""

from __future__ import annotations

from lakelog_testing.crash.checker import Violation
from lakelog_testing.crash.filesystem import CrashPoint, SimFileSystem
from lakelog_testing.crash.images import Image, all_lost, images, nothing_lost
from lakelog_testing.crash.opener import CrashPlan
from lakelog_testing.crash.simulation import Broken, SimulationResult, simulate

__all__ = [
    "Broken",
    "CrashPlan",
    "CrashPoint",
    "Image",
    "SimFileSystem",
    "SimulationResult",
    "Violation",
    "all_lost",
    "images",
    "nothing_lost",
    "simulate",
]
