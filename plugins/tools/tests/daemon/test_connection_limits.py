"""Which connections a port has a place for, which one ends for another, and the lines of it all."""

from __future__ import annotations

import logging
import resource
from typing import Any

import attrs
import pytest

from lakelog_daemon.connection_limits import (
    Admission,
    ConnectionLimits,
    RareLines,
    descriptors_for_peers,
)


@attrs.define
class Port:
    """Limits with a clock that a test sets, and the addresses of the connections that ended."""

    limits: ConnectionLimits
    ended: list[str] = attrs.field(factory=list)
    now_s: float = 0.0

    @classmethod
    def of(cls, most: int = 3, **more: Any) -> Port:
        made = cls(
            ConnectionLimits(
                most=most,
                first_request_s=30,
                idle_s=120,
                lines=RareLines(logging.getLogger("lakelog.tests")),
                **more,
            )
        )
        made.limits.clock = lambda: made.now_s
        return made

    def connect(self, address: str, *, proven: bool = False) -> Admission | None:
        self.now_s += 0.3
        place = self.limits.admit(address, lambda: self.ended.append(address))
        if proven and place is not None:
            self.limits.prove(place)
        return place


def test_a_connection_without_a_request_ends_for_a_new_one() -> None:
    port = Port.of()
    for address in ("a", "b", "c"):
        assert port.connect(address, proven=address == "a")
    assert port.connect("d")
    assert port.ended == ["b"]


def test_a_client_that_does_not_read_or_is_idle_ends_for_a_new_one() -> None:
    port = Port.of()
    places = [port.connect(address, proven=True) for address in ("a", "b", "c")]
    assert None not in places
    assert port.connect("d") is None, "all have just sent a request"
    first, second, third = filter(None, places)
    port.limits.wait(first, 1)
    port.limits.stall(third, True)
    port.now_s += 20
    assert port.connect("d", proven=True)
    assert port.connect("e", proven=True)
    assert port.ended == ["c", "b"], "one waits for messages"
    assert port.connect("f") is None
    assert first in port.limits.places
    assert second not in port.limits.places


def test_an_address_with_more_than_half_gives_one_up_for_another() -> None:
    port = Port.of(most=4)
    for address in ("a", "b", "b", "b"):
        place = port.connect(address, proven=True)
        assert place is not None
        port.limits.wait(place, 1)
    assert port.connect("b") is None
    assert port.connect("c")
    assert port.ended == ["b"]


def test_the_connections_of_an_address_are_limited() -> None:
    port = Port.of(most=9, most_of_address=2)
    assert port.connect("a", proven=True)
    assert port.connect("a")
    assert port.connect("a", proven=True)
    assert port.ended == ["a"]
    assert port.connect("a") is None
    assert port.connect("b")


def test_descriptors_are_limited_and_given_back() -> None:
    port = Port.of(most=9, most_descriptors=lambda: 4)
    first, second = port.connect("a", proven=True), port.connect("b", proven=True)
    assert first is not None
    assert second is not None
    assert port.limits.take_descriptors(first, 2)
    assert not port.limits.take_descriptors(second, 2)
    assert port.connect("c") is None
    port.limits.leave(first)
    port.limits.leave(first)
    assert port.limits.take_descriptors(second, 2)
    assert port.connect("c")


def test_silent_connections_end() -> None:
    port = Port.of(most=9)
    idle, heard, stalled = (port.connect(each, proven=True) for each in "ihs")
    assert port.connect("n")
    assert idle is not None
    assert heard is not None
    assert stalled is not None
    port.limits.stall(stalled, True)
    port.now_s += 30
    heard.is_heard = stalled.is_heard = True
    port.limits.end_overdue()
    assert port.ended == ["n"]
    port.now_s += 100
    stalled.is_heard = True
    port.limits.end_overdue()
    assert port.ended == ["n", "i", "s"]


def test_the_connection_for_which_most_bytes_are_held_ends() -> None:
    port = Port.of(most_held_bytes=100)
    small, large = port.connect("a", proven=True), port.connect("b", proven=True)
    assert small is not None
    assert large is not None
    port.limits.hold(large, 90)
    port.limits.hold(small, 10)
    port.limits.hold(small, 20)
    port.limits.hold(large, 90)  # its end is not there yet
    assert port.ended == ["b"]


def test_the_log_keeps_its_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    for most in (64, 1024, 1 << 16, resource.RLIM_INFINITY):
        monkeypatch.setattr(resource, "getrlimit", lambda _, most=most: (most, most))
        found = descriptors_for_peers()
        if most != resource.RLIM_INFINITY:
            assert found <= most - most // 10 - min(600, most // 2)
        assert found > most // 3


def test_one_line_a_minute_of_a_kind(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 0.0
    lines = RareLines(logging.getLogger("lakelog.tests"), lambda: now_s)
    for number in range(300):
        lines.warning("slave %s reports %d", "a", number, kind="report")
    lines.warning("another")
    now_s = 60.0
    lines.warning("slave %s reports %d", "a", 300, kind="report")
    assert caplog.messages == [
        "slave a reports 0",
        "another",
        "slave a reports 300 (and 299 more)",
    ]
