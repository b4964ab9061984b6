"""Helper processes that read the sound part of a long log in parallel.

They are used only where it saves time. The recovery itself reads whatever they fail to answer, so a
failing helper only costs time.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lakelog.recovery.sections import Section

MIN_BYTES: Final = 512 << 20
"""Below this, reading takes less time than starting a process."""
PART_BYTES: Final = 128 << 20
"""Size of one task, small enough to keep all helpers busy until the end."""
_MOST: Final = 8
_FASTER: Final = {"OPENBLAS_NUM_THREADS": "1"}
"""Keeps NumPy from starting threads for matrices, a third of the start-up time."""
_LOG: Final = logging.getLogger(__name__)


def sections(
    directory: Path,
    starts: Sequence[int],
    size_bytes: int,
    min_bytes: int = MIN_BYTES,
    *,
    sealed: bool = False,
    reached: int = 0,
) -> Generator[Section, None, None]:
    """Yield the helpers' sections of the segments at ``starts``, in order; ends without an answer.

    A segment is split; see :mod:`.sections` for where its parts begin.

    :param sealed: whether a record without a record checksum is not sound
    :param reached: the presumed end of the log, as the last segment may be nearly empty
    """
    if not starts or max(reached - starts[0], (len(starts) - 1) * size_bytes) < min_bytes:
        return
    parts = [
        (start + at, min(PART_BYTES, size_bytes - at))
        for start in starts
        for at in range(0, size_bytes, PART_BYTES)
    ]
    count = min(len(parts), len(os.sched_getaffinity(0)), _MOST)
    if count < 2 or not sys.executable:
        return
    request = {"directory": str(directory), "size_bytes": size_bytes, "sealed": sealed}
    try:
        with ExitStack() as running:
            yield from _answers(request, parts, count, running)
    except (OSError, ValueError, KeyError, TypeError) as error:
        _LOG.debug("a helper process did not answer: %s", error)


def _answers(
    request: Mapping[str, object],
    parts: Sequence[tuple[int, int]],
    count: int,
    running: ExitStack,
) -> Generator[Section, None, None]:
    from lakelog.recovery.sections import Section  # brings NumPy

    helpers = [
        _begin({**request, "parts": list(parts[number::count])}, running) for number in range(count)
    ]
    for number in range(len(parts)):
        output = helpers[number % count].stdout
        assert output is not None  # for the type checker: it is a pipe
        yield Section.from_json(output.readline())


def _begin(request: Mapping[str, object], running: ExitStack) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "lakelog.recovery.sections"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **_FASTER, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    running.callback(_end, process)
    assert process.stdin is not None  # for the type checker: it is a pipe
    process.stdin.write(json.dumps(request) + "\n")
    process.stdin.flush()
    return process


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()
