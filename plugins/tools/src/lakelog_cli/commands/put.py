"""``lakelog put``: appends messages from arguments, from lines, or from JSON.

A line of JSON has the field names of ``lakelog.Message``, and a binary body as ``body_base64``.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from typing import Annotated, Any, BinaryIO, Final, TypedDict

import attrs
import typer

from lakelog import Store
from lakelog.errors import NotDurable, PutRefused, SettingsError
from lakelog.message import Message
from lakelog.results import PutResult
from lakelog_cli import options, output

BASE64: Final = "body_base64"
FIELDS: Final = {each.name for each in attrs.fields(Message)} | {BASE64}


def messages_of(lines: Iterable[str | bytes], defaults: Message, source: str) -> Iterator[Message]:
    """Yield one message per non-empty line; missing fields are taken from ``defaults``."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield _message(line, defaults, f"{source}, line {number}")


def _message(line: str | bytes, defaults: Message, place: str) -> Message:
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise SettingsError(f"this is no JSON: {error}", source=place) from None
    if not isinstance(fields, dict):
        raise SettingsError("this is no JSON object", source=place)
    unknown = sorted(set(fields) - FIELDS)
    if unknown:
        what = f"a message has no {unknown[0]!r}; known are {', '.join(sorted(FIELDS))}"
        raise SettingsError(what, source=place)
    return attrs.evolve(defaults, **_with_body(fields, place))


def _with_body(fields: dict[str, Any], place: str) -> dict[str, Any]:
    """The fields of a message, with the body as bytes."""
    packed, text = fields.pop(BASE64, None), fields.get("body")
    if packed is not None and text is not None:
        raise SettingsError(f"give body or {BASE64}, not both", source=place)
    try:
        if packed is not None:
            fields["body"] = base64.b64decode(packed, validate=True)
        elif text is not None:
            fields["body"] = text.encode()
    except (ValueError, TypeError, AttributeError):
        raise SettingsError(f"its body is no text, or {BASE64} no base64", source=place) from None
    return fields


BATCH: Final = 512
"""Number of messages of a stream that are put at once."""
STDIN: Final = "-"


class PutRow(TypedDict):
    """A message that was put.

    :ivar status: PUT_OK, or the status for a guarantee that was not met in time
    :ivar size: length of its record, in bytes
    """

    status: str
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    store_timestamp_ms: int
    store_host: str
    message_id: str


@output.prints(PutRow)
def put(  # noqa: PLR0913  # each argument is an option of the command
    store: options.GivenStore,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic of messages without one.")],
    bodies: Annotated[
        list[str] | None, typer.Argument(metavar="[BODY]...", help="Bodies; one message each.")
    ] = None,
    *,
    tags: Annotated[str | None, typer.Option(help="A tag, for filters.")] = None,
    keys: Annotated[str | None, typer.Option(help="Keys, with spaces between them.")] = None,
    queue: Annotated[
        int | None, typer.Option(min=0, help="Queue id; default: round robin.")
    ] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="K=V", help="A property; may be repeated."),
    ] = None,
    stdin: Annotated[bool, typer.Option("--stdin", help="Each line is a message.")] = False,
    jsonl: Annotated[
        str | None, typer.Option(metavar="FILE|-", help="Each line is a message in JSON.")
    ] = None,
    mode: options.PutMode = "write",
    as_json: options.AsJson = False,
) -> None:
    """Append messages, and print the place of each; a missing store is made.

    If other processes have the store open, their settings apply: see 'flush' for durability.

    A line of JSON has the fields of lakelog.Message (body_base64 for a binary body); the options
    give the missing fields. Messages of a stream are put in batches: if a batch is refused, the
    messages already printed are in the log.
    """
    if sum([bool(bodies), stdin, jsonl is not None]) != 1:
        raise typer.BadParameter("give BODY, or --stdin, or --jsonl FILE: one of them")
    like = Message(
        topic, b"", tags=tags, keys=_keys(keys), queue_id=queue, properties=_pairs(properties)
    )
    with ExitStack() as stack:
        messages = _messages(stack, like, bodies, jsonl)
        opened = stack.enter_context(store.open(mode, store.path))
        _put_all(opened, messages, as_json)


def _keys(text: str | None) -> list[str] | None:
    return text.split() if text else None


def _pairs(texts: Iterable[str] | None) -> dict[str, str] | None:
    pairs = [text.partition("=") for text in texts or ()]
    for name, equals, _ in pairs:
        if not name or not equals:
            raise typer.BadParameter(f"--property {name} is not K=V")
    return {name: value for name, _, value in pairs} or None


def _messages(
    stack: ExitStack, like: Message, bodies: Sequence[str] | None, jsonl: str | None
) -> Iterator[Message]:
    if bodies:
        return (attrs.evolve(like, body=body.encode(errors="surrogateescape")) for body in bodies)
    if jsonl is None:
        lines = sys.stdin.buffer
        return (attrs.evolve(like, body=line.removesuffix(b"\n")) for line in lines)
    return messages_of(_opened(stack, jsonl), like, "stdin" if jsonl == STDIN else jsonl)


def _opened(stack: ExitStack, name: str) -> BinaryIO:
    if name == STDIN:
        return sys.stdin.buffer
    try:
        return stack.enter_context(open(name, "rb"))
    except OSError as error:
        raise SettingsError(f"cannot be read: {error.strerror}", source=name) from None


def _put_all(store: Store, messages: Iterator[Message], as_json: bool) -> None:
    done = 0
    with output.progress("putting", hidden=sys.stdout.isatty()) as advance:
        while batch := list(islice(messages, BATCH)):
            try:
                results = store.put_batch(batch)
            except PutRefused as error:
                _report(error.accepted, as_json)
                raise
            except NotDurable as error:
                _report(error.result, as_json)
                raise
            _report(results, as_json)
            done += len(batch)
            advance(done)


def _report(results: Iterable[PutResult], as_json: bool) -> None:
    if as_json:
        output.write_lines(map(_row, results))
        return
    for each in results:
        place = f"{each.physical_offset} {each.topic}/{each.queue_id}@{each.queue_offset}"
        output.print_line(f"{each.status.name} {place} {each.message_id}")


def _row(result: PutResult) -> dict[str, object]:
    more = {"status": result.status.name, "message_id": result.message_id}
    return attrs.asdict(result) | more
