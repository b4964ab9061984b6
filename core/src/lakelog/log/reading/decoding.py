"""Restores bodies that an append callback has encoded; errors name the callback."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from lakelog.registry import Registry, check_object
from lakelog_format.message import StoredMessage
from lakelog_interfaces.errors import BadStrategy, DecodeFailed, LakelogError
from lakelog_interfaces.strategies import AppendCallback, BodyDecoder, Kind


@attrs.frozen
class CheckedDecoder:
    """Calls ``decode`` and checks its result.

    :ivar decode: the method of the append callback
    :ivar failed: builds the error that names the callback
    """

    decode: Callable[[Sequence[StoredMessage]], Sequence[StoredMessage]]
    failed: Callable[[str], DecodeFailed]

    def __call__(self, messages: Sequence[StoredMessage]) -> Sequence[StoredMessage]:
        """Return the messages with their original bodies.

        Raises :class:`~lakelog.errors.DecodeFailed`.
        """
        if not messages:
            return messages
        try:
            given = self.decode(messages)
            problem = None if given is messages else _problem(messages, given)
        except LakelogError:
            raise
        except Exception as error:
            did = f"raised {type(error).__name__}: {error}"
            raise self.failed(f"{did}, decoding {_shown(messages)}") from error
        if problem is not None:
            raise self.failed(f"returned {problem}, decoding {_shown(messages)}")
        return given


def _problem(messages: Sequence[StoredMessage], given: Sequence[StoredMessage]) -> str | None:
    if not isinstance(given, Sequence) or len(given) != len(messages):
        return f"{given!r:.80} for {len(messages)} messages"
    for one, other in zip(messages, given, strict=True):
        if not isinstance(other, StoredMessage) or one.physical_offset != other.physical_offset:
            return f"{other!r:.80} for the message at offset {one.physical_offset}"
        if type(other.body) is not bytes:
            return f"a body of {type(other.body).__name__}, not bytes"
    return None


def _shown(messages: Sequence[StoredMessage]) -> str:
    first, last = messages[0].physical_offset, messages[-1].physical_offset
    more = "" if first == last else f" to {last}"
    return f"messages at offset {first}{more}; check its settings, such as a key"


def decoder_of(callback: AppendCallback, registry: Registry, name: str) -> CheckedDecoder | None:
    """The decoder of an append callback; ``None`` if it stores bodies unchanged.

    Raises :class:`~lakelog.errors.BadStrategy` for a ``decode`` with wrong arguments.
    """
    if not isinstance(callback, BodyDecoder):
        return None
    problem = check_object(callback, BodyDecoder)
    if problem is not None:
        raise registry.fault(Kind.APPEND_CALLBACK, name, BadStrategy)(f"cannot read: {problem}")
    return CheckedDecoder(callback.decode, registry.fault(Kind.APPEND_CALLBACK, name, DecodeFailed))
