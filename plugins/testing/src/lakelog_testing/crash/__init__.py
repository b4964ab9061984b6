"""Crashes a store thousands of times, and checks that recovery keeps every promise.

For people who write a writer, a flush strategy or a dispatcher, and for lakelog itself::

    from lakelog_testing.crash import CrashPlan, simulate
    import my_package.plugin

    def test_nothing_promised_is_lost(tmp_path):
        plan = CrashPlan(writer="file", flush="mine", plugins=[my_package.plugin])
        outcome = simulate(plan, images=1000, seed=1, keep=tmp_path)
        assert not outcome.violations, outcome

A thousand images take about 8 seconds of one processor. ``str(outcome)`` says what was broken,
where, and by which call it is found again; ``keep`` has the image as a directory, to be opened with
``lakelog.open`` or looked at with ``lakelog recover --dry-run``. If ``PUT_OK`` promises nothing
under your strategy, say ``put_is_durable=False``; ``failing_sync=True`` lets one sync of each run
fail. Prove that your test can fail: plant a bug, as ``examples/crash_test_a_strategy.py`` does.

How it works. A seeded workload puts messages (of many sizes, topics, queues and keys; single, in
batches, asynchronously, from several threads), flushes log and queues, removes topics, closes and
opens again. In most runs, other threads append and roll the log in the middle of its commits and
syncs: :mod:`lakelog_testing.crash.interleaving` stops the thread that commits or syncs before a
commit, between commit and sync, at each write and sync of a file, and behind the sync, until the
log has rolled. All of that goes through :class:`SimFileSystem`, which stands in for
``RealFileSystem``: the files are real ones, and beside them it keeps what is
durable. At every sync, and at every acknowledgement, a crash point keeps what a crash then could
leave, together with what was promised by then. From each point come images: directories as a crash
could leave them. Every clean close is such a point, too, and is always tried
(``points_per_run=0`` tries nothing else, which finds what only threads bring about soonest). Each
one is written out, recovered, and checked:

- every message that was promised is there, at its place and unaltered;
- nothing is there that was never put, and nothing that an earlier recovery had taken out;
- every record stands at its number in its queue, and is found by its key; no queue goes beyond
  the log; queues that were removed do not come back;
- whole records that recovery took out of the log are in ``lakelog/quarantine``;
- the store takes puts again.

One image in ``images_per_whole_check`` (25; in the long run 50) goes the whole way: it is opened by
what :func:`lakelog.open` calls, read message by message, takes puts, and is closed. All others go a
short one (:mod:`lakelog_testing.crash.short`), three times as fast: recovery, queues and index do
the same, but no owner is put around them, so that no threads, lock and ``abort``, no segments to
append to, no puts, no reads through queues and no close are tested there; and within a run, what is
equal to the byte is worked on once. Each way alone finds planted bugs (``tests/crash`` shows it),
and every second crash, below, starts with a whole open.

Of some images, ``lakelog.recover`` or ``lakelog.repair`` works on them before they are opened.

A sample of the images goes through a second crash: recovery runs over a :class:`SimFileSystem`,
with a few more puts behind it, and that is crashed again, anywhere. Some of these take place after
a kill that the machine survived: what was not durable by then still is not.

What is promised. A ``PUT_OK`` under a flush strategy that waits is durable, unless
the message says ``wait_store_ok=False``; under ``none`` and ``timed`` it is what the log's position
``flushed`` covers; after a close, everything is.

The model, harsher than most disks on purpose:

- A page of 4,096 bytes that changed since the last sync may be found in any state that was seen
  since, each page for itself; and torn: each sector of 512 bytes from another of these states.
  Stores through a map make no call; they are found by comparing files at every call that changes
  something, at every sync and at every acknowledgement.
- A sync covers what was in the file when it began, and nothing that came later.
- The length of a file may be any that it had since the last sync. What was cut off does not come
  back together with a later length.
- A change of a name (create, rename, exchange, unlink, mkdir, rmdir) is durable by a sync of its
  directory only, not by a sync of the file. It is all or nothing, a rename between two directories
  too. Changes that touch the same name happen in their order; all others in any order.
- A sync of a directory brings along the earlier changes of other directories that it needs.

Not in the model: sectors that are torn themselves, syncs that lie, bits that rot, and what the
machine does to a file system without a journal beyond this.

Everything follows from the seed, but for the threads: which of them comes first may differ, where
they are not held up for a roll. An image that breaks a promise can be kept (``keep=``), as a
directory to look at.
Names of index files and store times follow the clock, too.
``python -m lakelog_testing.crash --help`` tells about long runs.
"""

from __future__ import annotations

from lakelog_testing.crash.checker import Checker
from lakelog_testing.crash.filesystem import CrashPoint, SimFileSystem
from lakelog_testing.crash.images import Image, all_lost, images, nothing_lost
from lakelog_testing.crash.ledger import Ledger
from lakelog_testing.crash.plan import CrashPlan
from lakelog_testing.crash.simulation import Broken, Outcome, simulate
from lakelog_testing.crash.verdicts import Violation

__all__ = [
    "Broken",
    "Checker",
    "CrashPlan",
    "CrashPoint",
    "Image",
    "Ledger",
    "Outcome",
    "SimFileSystem",
    "Violation",
    "all_lost",
    "images",
    "nothing_lost",
    "simulate",
]
