"""``lakelog grep``: messages by text, topic, tag, key and time, by a process for each range."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import islice, zip_longest
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Final, TypedDict

import attrs
import numpy as np
import typer
from numpy.typing import NDArray

from lakelog import Store, times
from lakelog.format.compression import NotUnpacked, decompress
from lakelog.format.layout import COMPRESSED
from lakelog.format.record_batch import Damage, RecordBatch
from lakelog_cli import findings, options, output
from lakelog_doctor.parallel_scan import directory_of

WORTH_BYTES: Final = 128 << 20
"""A shorter log is read by one process: starting others takes longer."""

Flags = NDArray[np.bool_]


@attrs.frozen
class Search:
    """Conditions, all of which a message must meet.

    :ivar pattern: a regular expression over the original body's bytes; ``None`` for any body
    :ivar is_literal: whether the pattern is a text without special characters
    :ivar topics: any of these; empty for all
    :ivar tag: the whole tag
    :ivar key: one of the message's keys, or its unique key
    :ivar since_ms: store time, inclusive
    :ivar until_ms: store time, inclusive
    """

    pattern: re.Pattern[bytes] | None
    is_literal: bool = False
    topics: frozenset[str] = frozenset()
    tag: str | None = None
    key: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None

    def matches(self, batch: RecordBatch) -> NDArray[np.int64]:
        """The indices of the messages that meet the conditions, in order."""
        chosen = np.ones(len(batch), np.bool_)
        if self.since_ms is not None:
            chosen &= batch.store_timestamps_ms >= self.since_ms
        if self.until_ms is not None:
            chosen &= batch.store_timestamps_ms <= self.until_ms
        if self.topics:
            chosen &= [each in self.topics for each in batch.topics]
        if self.tag is not None or self.key is not None:
            self._by_properties(batch, chosen)
        if self.pattern is not None and chosen.any():
            self._by_text(batch, self.pattern, chosen)
        return np.flatnonzero(chosen)

    def _by_properties(self, batch: RecordBatch, chosen: Flags) -> None:
        some = batch.take(chosen)
        chosen[chosen] = [
            (self.tag is None or each.get("TAGS") == self.tag)
            and (self.key is None or self.key in _keys(each))
            for each in some.properties
        ]

    def _by_text(self, batch: RecordBatch, pattern: re.Pattern[bytes], chosen: Flags) -> None:
        if self.is_literal and batch.decoder is None and not (batch.sys_flags & COMPRESSED).any():
            chosen &= _with_text(batch, pattern)
            return
        chosen[chosen] = [
            pattern.search(_body(batch, int(at))) is not None for at in np.flatnonzero(chosen)
        ]


def _keys(properties: dict[str, str]) -> list[str]:
    return [*properties.get("KEYS", "").split(), properties.get("UNIQ_KEY", "")]


def _body(batch: RecordBatch, at: int) -> bytes:
    """The original body; as stored if it cannot be unpacked."""
    message = batch.message(at)
    try:
        return decompress(message.body, message.sys_flag)
    except NotUnpacked:
        return message.body


def _with_text(batch: RecordBatch, pattern: re.Pattern[bytes]) -> Flags:
    """For each body, whether it has a literal text: the whole run is searched at once.

    A text in a topic or in properties, or one that begins in a body and ends behind it, is found as
    well, and left out. The search goes on one byte behind, as a body may begin within such a text.
    """
    starts = batch.body_positions
    ends = starts + batch.body_lengths
    found = np.zeros(len(batch), np.bool_)
    match = pattern.search(batch.buffer)
    while match is not None:
        at = int(np.searchsorted(starts, match.start(), "right")) - 1
        is_inside = at >= 0 and match.end() <= ends[at]
        if is_inside:
            found[at] = True
        match = pattern.search(batch.buffer, int(ends[at]) if is_inside else match.start() + 1)
    return found


def search(
    store: Store,
    open_again: Callable[[], Store],
    wanted: Search,
    processes: int | None,
    on_damage: Callable[[Damage], None],
) -> Iterator[int]:
    """Yield the physical offsets of the messages that match, in the log's order.

    :param open_again: opens the store with the same settings, in another process
    :param processes: number of reading processes; ``None`` is one per core if the log is long
        enough
    """
    ranges = _ranges(store)
    if processes is None:
        is_long = store.max_offset - store.min_offset >= WORTH_BYTES
        processes = len(os.sched_getaffinity(0)) if is_long else 1
    if min(processes, len(ranges)) < 2:
        yield from _reported(*_found(store, wanted, (None, None)), on_damage)
        return
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        asked = [pool.submit(_search_range, open_again, wanted, each) for each in ranges]
        for answer in asked:
            yield from _reported(*answer.result(), on_damage)


def _reported(
    offsets: Sequence[int], damages: Sequence[Damage], on_damage: Callable[[Damage], None]
) -> Iterator[int]:
    for damage in damages:
        on_damage(damage)
    yield from offsets


def _ranges(store: Store) -> list[tuple[int, int | None]]:
    """A range for each segment; the last one has no end, as it may grow."""
    found = [each.start_offset for each in directory_of(store).segments()]
    starts = [each for each in found if store.min_offset <= each < store.max_offset]
    return list(zip_longest(starts, starts[1:]))


def _search_range(
    open_store: Callable[[], Store], wanted: Search, part: tuple[int, int | None]
) -> tuple[list[int], list[Damage]]:
    """Search a range in a process of its own."""
    with open_store() as store:
        return _found(store, wanted, part)


def _found(
    store: Store, wanted: Search, part: tuple[int | None, int | None]
) -> tuple[list[int], list[Damage]]:
    offsets: list[int] = []
    damages: list[Damage] = []
    end = part[1]
    for piece in store.scan_pieces(*part):
        if isinstance(piece, RecordBatch):
            places = piece.starts[wanted.matches(piece)] + piece.base_offset
            inside = places if end is None else places[places < end]
            offsets += inside.tolist()
        elif isinstance(piece, Damage):
            damages.append(piece)
    return offsets, damages


EPILOG: Final = times.HELP


class CountRow(TypedDict):
    """The number of matching messages of a store, with ``--count``."""

    store: str
    messages: int


@output.prints(output.MessageRow, CountRow)
def grep(  # noqa: PLR0913  # each argument is an option of the command
    opening: options.OpenOptions,
    pattern: Annotated[
        str,
        typer.Argument(metavar="TEXT", help="The text; with -e an expression; '' for any body."),
    ],
    stores: Annotated[
        list[Path], typer.Argument(metavar="STORE...", help="One or more store directories.")
    ],
    *,
    is_regex: Annotated[
        bool, typer.Option("-e", "--regex", help="TEXT is a regular expression of Python.")
    ] = False,
    ignore_case: Annotated[
        bool, typer.Option("-i", "--ignore-case", help="Ignore the case of ASCII letters.")
    ] = False,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", help="Only this topic; may be repeated.")
    ] = None,
    tag: Annotated[str | None, typer.Option("--tag", help="Only messages with this tag.")] = None,
    key: Annotated[str | None, typer.Option("--key", help="Only messages with this key.")] = None,
    since: options.Since = None,
    until: options.Until = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Most messages to print.")] = None,
    count: Annotated[bool, typer.Option("-c", "--count", help="Print only the number.")] = False,
    processes: options.ReadingProcesses = None,
    as_json: options.AsJson = False,
) -> None:
    """Print the messages whose bodies contain a text, in the log's order.

    Only the log is read, so queues and index may be missing; the stores may be in use, or left by a
    crashed broker. Compressed bodies are decompressed. The exit code is 1 if no message matches,
    or if damage was found.
    """
    compiled = _compiled(pattern, is_regex=is_regex, ignore_case=ignore_case)
    wanted = Search(compiled, not is_regex, frozenset(topic or ()), tag, key, since, until)
    damages, found = findings.DamageCounter(), 0
    for store in stores:
        left = None if limit is None else limit - found
        again = partial(opening.open, "read", store, notes=False)
        with opening.open("read", store) as opened:
            places = islice(search(opened, again, wanted, processes, damages), left)
            if count:
                number = sum(1 for _ in places)
                text = str(number) if len(stores) == 1 else f"{store}: {number}"
                output.write_result(
                    {"store": str(store), "messages": number}, text, as_json=as_json
                )
                found += number
                continue
            for message in map(opened.look_up, places):
                found += 1
                output.write_messages([message], as_json=as_json)
    if not found and not count:
        output.print_line("no message matches", err=True)
    output.exit_if_found(damages.count or not found)


def _compiled(text: str, *, is_regex: bool, ignore_case: bool) -> re.Pattern[bytes] | None:
    """The pattern over bytes; ``None`` for an empty text, which every body has."""
    if not text:
        return None
    raw = text.encode("utf-8", "surrogateescape")
    try:
        return re.compile(raw if is_regex else re.escape(raw), re.IGNORECASE if ignore_case else 0)
    except re.error as error:
        raise typer.BadParameter(f"{text!r} is no regular expression: {error}") from None
