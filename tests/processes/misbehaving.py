"""A process that goes to an owner's socket and misbehaves: ``... misbehaving STORE``.

It speaks the protocol by itself as far as it wants to be let in. Each line of input is an order, a
JSON list; the answer is a line of JSON: what the owner said, or ``"end"`` once it has hung up.

- ``hello FIELDS``: says a hello with those fields changed
- ``say NAME``: says one of :data:`HELLOS` instead of a hello
- ``silent``: says nothing
- ``ring NAME SEED``: attaches, and puts nonsense into its ring as in :data:`RINGS`
- ``deaf``: attaches, then puts on and on, asks to be woken for each answer, and never reads its
  socket
"""

from __future__ import annotations

import array
import json
import mmap
import os
import random
import socket
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import attrs

from lakelog.attach.hello import Hello, as_said
from lakelog.codec.encoder import Encoder
from lakelog.codec.limits import Limits
from lakelog.codec.queuechoice import RoundRobin
from lakelog.layout import OWN_DIR
from lakelog.ring.layout import (
    ALIGNMENT,
    AT_FREED,
    AT_PRODUCER_SLEEPS,
    AT_TAIL,
    ENTRY_BYTES,
    HEADER_BYTES,
)
from lakelog.ring.offer import offer_of
from lakelog.ring.writing import RingWriter
from tests.processes.member import SOCKET
from tests.processes.program import end_with_parent
from tests.processes.words import message_of

_PATIENCE_SECONDS: Final = 15.0
_HARMLESS_SECONDS: Final = 0.5
"""How long it waits where the owner need not notice."""
_RECORDS: Final = 20
_HEAD_BYTES: Final = 91
"""Of a record: its fixed fields but for the body, and the length of the topic."""

HELLOS: Final[dict[str, bytes]] = {
    "no JSON": b"hello there",
    "a list": b"[1, 2, 3]",
    "binary": bytes(range(256)),
    "too long": b" " * 20_000,
    "deep": b"[" * 10_000,
    "nothing in it": b"{}",
    "other types": b'{"protocol": 1, "lakelog": [], "role": 7, "pid": "x", "producer": null}',
    "a number that is too large": b'{"protocol": ' + b"9" * 4000 + b"}",
}


@attrs.frozen
class Ring:
    """The memory of a ring, as somebody writes to it who knows nothing of producers."""

    memory: mmap.mmap
    choose: random.Random

    def word(self, at: int, value: int) -> None:
        self.memory[8 * at : 8 * at + 8] = (value % (1 << 64)).to_bytes(8, sys.byteorder)

    def noise(self, start: int, end: int) -> None:
        self.memory[start:end] = self.choose.randbytes(end - start)

    def entry(self) -> bytes:
        """A whole entry that is as it should be."""
        copy = memoryview(bytearray(self.memory[:]))
        writer = RingWriter(copy)
        messages = [message_of(f"bad-{at}") for at in range(_RECORDS)]
        writer.put(offer_of(_encoder().encode(messages)), 1)
        tail = copy.cast("Q")[AT_TAIL]
        return bytes(copy[HEADER_BYTES : HEADER_BYTES + tail])

    def publish(self, entry: bytes) -> None:
        self.memory[HEADER_BYTES : HEADER_BYTES + len(entry)] = entry
        self.word(AT_TAIL, len(entry))


def _encoder() -> Encoder:
    return Encoder(Limits.of(16384, 1 << 20), "127.0.0.1:10911", False, None, RoundRobin(4))


def _tail_beyond(ring: Ring) -> None:
    ring.word(AT_TAIL, len(ring.memory) * 4 // ALIGNMENT * ALIGNMENT)


def _tail_unaligned(ring: Ring) -> None:
    ring.publish(ring.entry())
    ring.word(AT_TAIL, 5)


def _tail_huge(ring: Ring) -> None:
    ring.word(AT_TAIL, -ALIGNMENT)


def _noise_as_entries(ring: Ring) -> None:
    ring.noise(HEADER_BYTES, len(ring.memory))
    ring.word(AT_TAIL, 64 * ALIGNMENT)


def _noise_everywhere(ring: Ring) -> None:
    ring.noise(0, len(ring.memory))


def _nothing_as_an_entry(ring: Ring) -> None:
    ring.word(AT_TAIL, ALIGNMENT)


def _cut_entry(ring: Ring) -> None:
    entry = ring.entry()
    ring.publish(entry[: len(entry) // 2 // ALIGNMENT * ALIGNMENT])


def _entry_twice(ring: Ring) -> None:
    entry = ring.entry()
    ring.publish(entry + entry)


def _another_word(ring: Ring) -> None:
    """One of the words that say what is in the entry."""
    entry = bytearray(ring.entry())
    word = ring.choose.randrange(9)
    value = ring.choose.choice([0, 1, 1 << 20, 1 << 31, 1 << 40, (1 << 64) - 1])
    entry[8 * word : 8 * word + 8] = value.to_bytes(8, sys.byteorder)
    ring.publish(bytes(entry))


def _another_size(ring: Ring) -> None:
    """A record that is not as long as it says."""
    entry = bytearray(ring.entry())
    entry[ENTRY_BYTES : ENTRY_BYTES + 4] = ring.choose.randbytes(4)
    ring.publish(bytes(entry))


def _another_head(ring: Ring) -> None:
    """Noise over the fixed fields of the first record."""
    entry = bytearray(ring.entry())
    entry[ENTRY_BYTES : ENTRY_BYTES + _HEAD_BYTES] = ring.choose.randbytes(_HEAD_BYTES)
    ring.publish(bytes(entry))


def _noise_behind_the_records(ring: Ring) -> None:
    """Over sizes, queues and topics."""
    entry = bytearray(ring.entry())
    record_bytes = int.from_bytes(entry[40:48], sys.byteorder)
    start = ENTRY_BYTES + record_bytes
    entry[start:] = ring.choose.randbytes(len(entry) - start)
    ring.publish(bytes(entry))


def _changing_all_the_while(ring: Ring) -> None:
    """Words and lengths change while the owner reads; what it takes is whole all the same."""
    entry = ring.entry()
    record_bytes = int.from_bytes(entry[40:48], sys.byteorder)
    ring.publish(entry)
    end = time.monotonic() + _HARMLESS_SECONDS
    while time.monotonic() < end:
        at = HEADER_BYTES + 8 * ring.choose.randrange(ENTRY_BYTES // 8)
        ring.noise(at, at + 8)
        start = HEADER_BYTES + ENTRY_BYTES + record_bytes
        ring.noise(start, HEADER_BYTES + len(entry))


def _words_of_the_owner(ring: Ring) -> None:
    """The words that only the owner writes, and its answers."""
    ring.publish(ring.entry())
    end = time.monotonic() + _HARMLESS_SECONDS
    while time.monotonic() < end:
        ring.noise(16 * 8, 24 * 8)
        ring.word(AT_FREED, ring.choose.getrandbits(64))
        ring.noise(HEADER_BYTES + 9 * 8, HEADER_BYTES + ENTRY_BYTES)


NOTICED: Final[dict[str, Callable[[Ring], None]]] = {
    "tail beyond the end": _tail_beyond,
    "tail unaligned": _tail_unaligned,
    "tail huge": _tail_huge,
    "noise as entries": _noise_as_entries,
    "noise everywhere": _noise_everywhere,
    "nothing as an entry": _nothing_as_an_entry,
    "a cut entry": _cut_entry,
    "an entry twice": _entry_twice,
    "another head of a record": _another_head,
    "noise behind the records": _noise_behind_the_records,
    "another size": _another_size,
}
"""After these the owner hangs up."""

RINGS: Final[dict[str, Callable[[Ring], None]]] = {
    **NOTICED,
    "another word": _another_word,
    "changing all the while": _changing_all_the_while,
    "words of the owner": _words_of_the_owner,
}
"""What is done to a ring; of some of these it depends on chance whether anybody notices."""


@attrs.frozen
class Attached:
    """A connection that was let in."""

    connection: socket.socket
    ring: Ring
    bell: int

    def wake(self) -> None:
        os.eventfd_write(self.bell, 1)


def _connected(path: Path) -> socket.socket:
    os.chdir(path / OWN_DIR)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(_PATIENCE_SECONDS)
    connection.connect(SOCKET)
    return connection


def _hello(**changed: Any) -> bytes:
    said = as_said(Hello(pid=os.getpid(), producer=uuid.uuid4().hex))
    return json.dumps({**said, **changed}).encode()


def _attach(path: Path, seed: int) -> Attached:
    connection = _connected(path)
    connection.send(_hello())
    data, rights, _, _ = connection.recvmsg(1 << 16, socket.CMSG_SPACE(16))
    descriptors = array.array("i", rights[0][2])
    memory = mmap.mmap(descriptors[0], json.loads(data)["ring_bytes"])
    return Attached(connection, Ring(memory, random.Random(seed)), descriptors[1])


def _heard(connection: socket.socket) -> str:
    """Whether the owner hangs up in time."""
    try:
        while connection.recv(1 << 16):
            pass
    except ConnectionError:
        pass
    except TimeoutError:
        return "it goes on"
    return "end"


def _say(what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def _be_deaf(path: Path) -> None:
    attached = _attach(path, 0)
    writer = RingWriter(memoryview(attached.ring.memory))
    _say("attached")
    encoder = _encoder()
    for sequence in range(1, 1 << 30):
        offer = offer_of(encoder.encode([message_of(f"deaf-{sequence}")]))
        while writer.put(offer, sequence) is None:
            writer.answers()
        attached.ring.word(AT_PRODUCER_SLEEPS, 1)
        attached.wake()


def _hello_with(path: Path, changed: dict[str, Any]) -> object:
    with _connected(path) as connection:
        connection.send(_hello(**changed))
        return json.loads(connection.recv(1 << 16))


def _say_instead(path: Path, name: str) -> str:
    with _connected(path) as connection:
        connection.send(HELLOS[name])
        return _heard(connection)


def _be_silent(path: Path) -> str:
    with _connected(path) as connection:
        return _heard(connection)


def _fill_ring(path: Path, name: str, seed: int) -> str:
    attached = _attach(path, seed)
    with attached.connection:
        RINGS[name](attached.ring)
        attached.wake()
        if name not in NOTICED:
            attached.connection.settimeout(_HARMLESS_SECONDS)
        return _heard(attached.connection)


ORDERS: Final[dict[str, Callable[..., object]]] = {
    "hello": _hello_with,
    "say": _say_instead,
    "silent": _be_silent,
    "ring": _fill_ring,
    "deaf": _be_deaf,
}


def main() -> None:
    """Misbehave as told."""
    end_with_parent()
    path = Path(sys.argv[1])
    for line in sys.stdin:
        how, *more = json.loads(line)
        _say(ORDERS[how](path, *more))


if __name__ == "__main__":
    main()
