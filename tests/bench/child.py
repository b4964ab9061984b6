"""One run of one peer in a separate process, without heap, caches or threads of another run.

`spawn` starts it; it prints its figures as JSON.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from tests.bench import content, peers
from tests.bench.load import Load
from tests.bench.model import CannotRunError, Sample
from tests.bench.peers.protocol import Peer


def spawn(peer: str, load: Load, directory: Path) -> Sample:
    """Run in a new process and wait for its figures."""
    command = [sys.executable, "-m", __name__, peer, str(directory), json.dumps(asdict(load))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotRunError(done.stderr.strip().splitlines()[-1])
    figures: Sample = json.loads(done.stdout)
    return figures


def run(peer: Peer, load: Load, directory: Path) -> Sample:
    """Warm up with a tenth of the load, then measure."""
    body = content.body(load.body_bytes)
    peer.open(directory)
    _apply(peer, load, max(load.count // 10, load.granule), body)
    start = time.perf_counter()
    _apply(peer, load, load.count, body)
    seconds = time.perf_counter() - start
    peer.close()
    rows = load.count // load.granule * load.granule
    return {
        "rows_s": rows / seconds,
        "mb_s": rows * load.body_bytes / seconds / 1e6,
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def _apply(peer: Peer, load: Load, count: int, body: bytes) -> None:
    if load.batch_size:
        peer.put_batch(count, load.batch_size, body)
    elif load.threads == 1:
        peer.put(count, body)
    else:
        with ThreadPoolExecutor(load.threads) as pool:
            list(pool.map(lambda _: peer.put(count // load.threads, body), range(load.threads)))


def _main(name: str, directory: str, load: str) -> None:
    print(json.dumps(run(peers.module(name).Peer(), Load(**json.loads(load)), Path(directory))))


if __name__ == "__main__":
    _main(*sys.argv[1:])
