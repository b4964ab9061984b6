"""Programming errors are TypeError or ValueError with the caller's names, and lakelog errors."""

from __future__ import annotations

import asyncio
import inspect
import pickle
import re
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from itertools import islice
from pathlib import Path
from threading import Event
from typing import Any, Final

import attrs
import pytest

import lakelog
from lakelog import LakelogError, Message, PutRefused, Store, aio
from lakelog.arguments import shown
from lakelog.errors import CorruptRecord, OffsetOutOfRange, StoreFailed
from lakelog.hooks.kinds import StoreSettings
from lakelog_lake import Landing
from lakelog_telemetry import TracedStore

pytestmark = pytest.mark.both_ways

NO_MESSAGES: Final[list[Any]] = [
    *(b"x", None, "x", 3, 10**5000, 1.5, object(), [Message("t", b"x")], Message),
]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with lakelog.open(tmp_path / "s", segment_size_bytes="1MiB", cleaner="retention") as store:
        yield store
        assert store.put(Message("t", b"later")).status is lakelog.PutStatus.PUT_OK


PUTS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "put": lambda store, wrong: store.put(wrong),
    "put_async": lambda store, wrong: store.put_async(wrong).result(10),
    "put_batch": lambda store, wrong: store.put_batch([wrong]),
    "put_batch of two": lambda store, wrong: store.put_batch([Message("t", b""), wrong]),
    "put_batch_async": lambda store, wrong: store.put_batch_async([wrong]).result(10),
}


@pytest.mark.parametrize("put", PUTS)
def test_what_is_no_message_is_a_type_error(store: Store, put: str) -> None:
    for wrong in NO_MESSAGES:
        with pytest.raises(TypeError, match=r"message is .*; give a lakelog\.Message") as caught:
            PUTS[put](store, wrong)
        assert isinstance(caught.value, LakelogError)
        assert not isinstance(caught.value, PutRefused)
    assert list(store.scan()) == []


def test_the_error_of_a_wrong_count_names_what_was_called(store: Store, tmp_path: Path) -> None:
    puts, opens = (store.put, ("t", b"x")), (lakelog.open, (tmp_path / "other", "w"))
    for function, given in (puts, opens):
        called: Any = function
        with pytest.raises(TypeError, match=rf"^{called.__qualname__}\(\) takes"):
            called(*given)


# --- each parameter of each public method, found by reflection ---

WRONG: Final[list[Any]] = [
    *(None, b"", b"x", "x", 1.5, object(), -1, 2**64, ["x"], {}),
    *(float("nan"), float("inf"), 10**5000, "\ud800", "\0", [[1]], {"x": b""}, {"x"}, str, Message),
]
"""Values, most of which each parameter refuses."""
STORED: Final = 10
OF_THE_OWNER: Final = "this process owns the store"
"""The argument was a valid one; but an owner cannot wait for a flush."""
DAMAGE: Final = (CorruptRecord, StoreFailed)
UNCHECKED: Final = ("in_thread", "bind", "forked", "messages")
"""A function of the caller's own, methods for lakelog alone, and one that waits for ever."""
SAID: Final = {
    "where": "where|message id|offset",
    "deliveries": "delivery",
    "bodies": "bodies|body",
    "to": "to|offset",
    "topics": "topics?|tags",
    "properties": "propert(y|ies)",
    "dispatchers": "dispatcher",
    "archive": "archive|segment source",
    "append": "append",
    "handle": "handle|MODULE:FUNCTION",
    "broker_conf": "broker_conf|settings cannot be read",
    "commitlog_path": "commitlog",
}
"""What an error says in place of the name of a parameter."""
WAITS: Final[dict[str, Any]] = {"since": {}, "workers": 0, "until_empty": True}
"""Values of optional parameters without which a call waits, or starts processes."""
Call = Callable[..., Any]


class Methods:
    """The public methods of all objects, over one store, with a valid value of each parameter."""

    def __init__(self, store: Store) -> None:
        for at in range(STORED):
            store.put(Message("t", b"%d" % at, "A", "k", queue_id=0))
        store.wait_dispatched()
        stop = Event()
        stop.set()
        message = Message("t", b"x", queue_id=0)
        self._store = store
        self._given: dict[str, Any] = {
            "message": message,
            "messages": [message],
            "topic": "t",
            "topics": "t",
            "bodies": [b"x"],
            "body": b"x",
            "group": "g",
            "key": "k",
            "where": 0,
            "offset": 0,
            "queue_id": 0,
            "timestamp_ms": 0,
            "first": 0,
            "count": 1,
            "to": "earliest",
            "commits": [("g", "t", {0: 0})],
            "max_messages": 1,
            "handle": repr,
            **WAITS,
            "stop": stop,
        }

    def of(self, what: str) -> Iterator[tuple[str, Call]]:
        """The names and functions of one kind; the same object has all of them."""
        with ExitStack() as opened:
            owner = self._owner(what, opened)
            for name in sorted({name for each in type(owner).__mro__ for name in vars(each)}):
                found = inspect.getattr_static(type(owner), name)
                if not name.startswith("_") and inspect.isfunction(found) and name not in UNCHECKED:
                    yield name, getattr(owner, name)

    def _owner(self, what: str, opened: ExitStack) -> Any:
        store = self._store
        if what == "consumer":
            return store.consumer("c", "t", [0], start="earliest")
        if what == "group":
            member = opened.enter_context(store.subscribe("s", "t", start="earliest"))
            self._given["delivery"] = member.poll(1)[0]
            return member
        made: dict[str, Callable[[], Any]] = {
            "store": lambda: store,
            "traced": lambda: TracedStore(store),
            "producer": lambda: store.producer("t"),
            "aio": lambda: aio.AsyncStore(store),
            "aio producer": lambda: aio.AsyncStore(store).producer("t"),
            "aio consumer": lambda: aio.AsyncConsumer(store.consumer("c", "t", [0]), store),
        }
        return made[what]()

    def calls(self, function: Call) -> Iterator[tuple[str, Call]]:
        """For each parameter, its name, and the function of its value alone."""
        parameters = inspect.signature(function).parameters
        given = {
            name: self._given[name]
            for name, each in parameters.items()
            if name in self._given and (each.default is each.empty or name in (*WAITS, "stop"))
        }
        for name, each in parameters.items():
            if each.kind is each.VAR_POSITIONAL:
                yield name, function
            elif each.kind is not each.VAR_KEYWORD:
                yield name, lambda wrong, name=name: function(**given | {name: wrong})


def _used(result: Any) -> None:
    """Take what a call returned, so that what it does later is done."""
    if inspect.iscoroutine(result) or inspect.isasyncgen(result):
        asyncio.run(_awaited(result))
    elif isinstance(result, Iterator):
        list(islice(result, STORED))
    elif isinstance(result, Future):
        result.result(10)
    elif hasattr(result, "close"):
        result.close()


async def _awaited(result: Any) -> None:
    if inspect.isasyncgen(result):
        with suppress(TimeoutError):  # it waits for messages: the argument is a valid one
            await asyncio.wait_for(anext(result, None), 0.1)
        await result.aclose()
        return
    made = await result
    if hasattr(made, "close"):
        await made.close()


def _wrongly(name: str, call: Call) -> list[str]:
    """The errors that are none of the argument ``name``."""
    said = SAID.get(name, name.removesuffix("s").replace("_", "."))
    found = []
    for wrong in WRONG:
        try:
            _used(call(wrong))
        except Exception as error:  # noqa: BLE001  # each one may be a finding
            is_right = isinstance(error, LakelogError) and not isinstance(error, DAMAGE)
            if not ((is_right and re.search(said, str(error))) or OF_THE_OWNER in str(error)):
                found.append(f"{name}={shown(wrong)}: {type(error).__name__}: {error}")
    return found


@pytest.mark.parametrize(
    "what",
    ["store", "traced", "producer", "consumer", "group", "aio", "aio producer", "aio consumer"],
)
def test_each_parameter_is_named_in_its_error(store: Store, what: str) -> None:
    methods = Methods(store)
    found = [
        f"{what}.{method}: {each}"
        for method, function in methods.of(what)
        for name, call in methods.calls(function)
        for each in _wrongly(name, call)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", [each.name for each in attrs.fields(Message)])
def test_each_field_of_a_message_is_named_in_its_error(store: Store, name: str) -> None:
    def message(wrong: Any) -> Any:
        return Message(**{"topic": "t", "body": b"x", name: wrong})

    found = [
        each
        for put in PUTS.values()
        for each in _wrongly(name, lambda wrong, put=put: put(store, message(wrong)))
    ]
    assert not found, "\n".join(found)


def test_each_argument_of_open_is_named_in_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = [each.name for each in attrs.fields(StoreSettings)]
    names = [name for name in inspect.signature(lakelog.open).parameters if name != "arguments"]
    found = []
    for at, name in enumerate([*names, *settings]):
        given = {"path": tmp_path / str(at)}
        found += _wrongly(name, lambda wrong, g=given, n=name: lakelog.open(**g | {n: wrong}))
    assert not found, "\n".join(found)


def test_each_argument_of_a_landing_is_named_in_its_error(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store.put(Message("t", b"x"))
    store.flush()
    stop = Event()
    stop.set()
    given: dict[str, Any] = {"store": store.path, "to": f"parquet:{tmp_path / 'lake'}"}
    found = []
    for name in (each.name for each in attrs.fields(Landing) if each.name != "system_topics"):
        for method in ("once", "status"):
            found += _wrongly(
                name, lambda wrong, n=name, m=method: getattr(Landing(**given | {n: wrong}), m)()
            )
    landing: Any = Landing(**given)
    for name in ("stop", "interval_ms"):
        found += _wrongly(name, lambda wrong, n=name: landing.follow(**{"stop": stop} | {n: wrong}))
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", ["recover", "repair", "promote", "cut_replica"])
def test_each_argument_of_a_repair_is_named_in_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with lakelog.open(tmp_path / "s") as store:
        store.put(Message("t", b"x"))
    function: Any = getattr(lakelog, name)
    parameters = inspect.signature(function).parameters
    given = {"path": tmp_path / "s", "offset": 0}
    found = []
    for each in {"path", "progress", "offset"} & parameters.keys():
        of = {other: given[other] for other in given.keys() & parameters.keys()}
        found += _wrongly(each, lambda wrong, n=each, g=of: function(**g | {n: wrong}))
    # Checked only by the files, and by a call: str is a function that raises.
    own = ("it is no replica", "progress=<class 'str'>")
    assert not [each for each in found if not any(words in each for words in own)]


def test_an_offset_inside_of_a_record_is_no_damage(store: Store) -> None:
    """But a record that should begin there, and whose magic number is wrong, is damaged."""
    results = [store.put(Message("t", b"x" * 50)) for _ in range(3)]
    for inside in (3, results[1].physical_offset + 1, results[2].end_offset - 9):
        with pytest.raises(OffsetOutOfRange, match=f"no record starts at offset {inside}"):
            store.look_up(inside)
    damaged = results[1].physical_offset
    with (store.path / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(damaged + 4)
        file.write(b"\xff\xff\xff\xff")
    with pytest.raises(CorruptRecord, match="no record starts here"):
        store.look_up(damaged)


def test_errors_of_arguments_and_open_itself_can_be_pickled(store: Store) -> None:
    with pytest.raises(LakelogError) as caught:
        store.get("t", -1, 0)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again)) == (type(caught.value), str(caught.value))
    assert pickle.loads(pickle.dumps(lakelog.open)) is lakelog.open
