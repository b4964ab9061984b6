"""A walk of all orders of steps at a lock: one at a time is inside, and nobody is kept out.

For small models in named tuples; :mod:`tests.protocol.test_protocol` explores the large ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

S = TypeVar("S", bound=Hashable)


def problem(
    begin: S,
    successors: Callable[[S], Iterable[S]],
    inside: Callable[[S], int],
    is_end: Callable[[S], bool],
) -> str | None:
    """Two that are inside, or one that waits for ever; ``None`` if there is no such order.

    :param successors: returns the states after one step of any process
    :param inside: returns how many processes are inside
    :param is_end: returns whether all have done their work, or are dead
    """
    before: dict[S, list[S]] = {begin: []}
    todo, ends = deque([begin]), list[S]()
    while todo:
        state = todo.popleft()
        if inside(state) > 1:
            return "two inside"
        if is_end(state):
            ends.append(state)
        for after in successors(state):
            if after not in before:
                before[after] = []
                todo.append(after)
            before[after].append(state)
    good = set(ends)
    while ends:
        for state in before[ends.pop()]:
            if state not in good:
                good.add(state)
                ends.append(state)
    return None if len(good) == len(before) else "stuck"
