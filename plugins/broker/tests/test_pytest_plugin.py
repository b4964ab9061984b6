"""The fixtures, in the tests of a user."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

NOT_NEEDED: Final = (
    *("grpc", "pyarrow", "typer", "rich", "psutil", "pandas", "lz4", "zstandard"),
    *("lakelog_broker.remoting.administration", "lakelog_broker.popping.service"),
    *("tomllib", "lakelog_queues.groups.property_filter"),
)
MOST_MODULES: Final = 410
"""Of lakelog, for the start of a broker; each takes about a millisecond of CPU time."""
TESTS: Final = f"""
import resource, sys
from lakelog_replication.settings import Address
from lakelog_replication.remoting import call

def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime

def send(broker, topic, body):
    fields = dict(a="p", b=topic, c="TBW102", d="4", e="0", f="0", g="1", h="0", i="", j="0")
    call(Address.parse(broker.namesrv), 310, fields, body)

def test_nothing_is_imported_before_it_is_used():
    assert "lakelog" not in sys.modules or "lakelog_broker.embedded" not in sys.modules

def test_cold(request):
    known = {{*sys.modules}}
    before = cpu()
    broker = request.getfixturevalue("rocketmq_broker")
    print("cold start: %.3f s of CPU" % (cpu() - before))
    assert not set(sys.modules) & {{{", ".join(map(repr, NOT_NEEDED))}}}
    made = [each for each in {{*sys.modules}} - known if each.startswith("lakelog")]
    assert len(made) <= {MOST_MODULES}, sorted(made)
    send(broker, "orders", b"one")
    assert [bytes(each.body) for each in broker.messages("orders")] == [b"one"]

def test_warm(request):
    before = cpu()
    broker = request.getfixturevalue("rocketmq_broker")
    print("warm start: %.3f s of CPU" % (cpu() - before))
    assert broker.messages("orders") == [], "each test has a broker of its own"

def test_endpoints_are_opened_by_their_first_use(rocketmq_broker):
    before = cpu()
    endpoints = rocketmq_broker.endpoints
    print("gRPC port: %.3f s of CPU" % (cpu() - before))
    assert rocketmq_broker.endpoints == endpoints
    import grpc
    with grpc.insecure_channel(endpoints) as channel:
        grpc.channel_ready_future(channel).result(60)

def test_files_are_small(rocketmq_broker):
    send(rocketmq_broker, "orders", b"one")
    rocketmq_broker.messages("orders")
    files = [each for each in rocketmq_broker.store.path.rglob("*") if each.is_file()]
    used = sum(each.stat().st_blocks * 512 for each in files)
    assert used < 4 << 20, {{each.name: each.stat().st_blocks * 512 for each in files}}

def test_first_of_the_session(rocketmq_broker_session):
    send(rocketmq_broker_session, "orders", b"one")

def test_second_of_the_session(rocketmq_broker_session):
    assert len(rocketmq_broker_session.messages("orders")) == 1
"""


def test_a_users_tests_pass_with_the_fixtures(tmp_path: Path) -> None:
    (tmp_path / "test_of_a_user.py").write_text(TESTS)
    plugins = ("-p", "no:lakelog-broker", "-p", "lakelog_broker.pytest_plugin")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-s", *plugins, f"--basetemp={tmp_path / 'base'}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "7 passed" in done.stdout
