"""``client.py ENDPOINT`` prints ``= FEATURE: yes``, or what happened instead.

RocketMQ's Python client of the gRPC protocol; its consumers are not shut down.
"""

from __future__ import annotations

import os
import queue
import sys
import time
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    LitePushConsumer,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)
from rocketmq.grpc_protocol import FilterType

_PATIENCE_S: Final = 60
_Consume: TypeAlias = Callable[[Any], Any]
_SETTINGS: Final = ClientConfiguration(sys.argv[1], Credentials(), request_timeout=30)
_CHECKED: Final[list[str]] = []


class _Checker(TransactionChecker):  # type: ignore[misc]  # the client has no types
    def check(self, half: Any) -> Any:
        _CHECKED.append(half.body.decode())
        is_yes = half.body == b"open-yes"
        return TransactionResolution.COMMIT if is_yes else TransactionResolution.ROLLBACK


class _Listener(MessageListener):  # type: ignore[misc]  # the client has no types
    def __init__(self, work: _Consume) -> None:
        self._work = work

    def consume(self, found: Any) -> Any:
        return self._work(found)


def _producer(topic: str) -> Any:
    made = Producer(_SETTINGS, [topic], checker=_Checker())
    made.startup()
    return made


def _message(topic: str, body: str, **more: Any) -> Any:
    made = Message()
    made.topic, made.body = topic, body.encode()
    for name, value in more.items():
        setattr(made, name, value)
    return made


def _simple(group: str, topic: str, expression: Any) -> Any:
    made = SimpleConsumer(_SETTINGS, group, {topic: expression}, await_duration=3)
    made.startup()
    return made


def _bodies(consumer: Any, count: int, most: int = 16) -> list[str]:
    found: list[str] = []
    end_s = time.monotonic() + _PATIENCE_S
    while len(found) < count and time.monotonic() < end_s:
        for each in consumer.receive(most, 30) or []:
            found.append(each.body.decode())
            consumer.ack(each)
    return found


def _pushed(group: str, topic: str, tag: str, consume: _Consume) -> None:
    made = PushConsumer(_SETTINGS, group, _Listener(consume), {topic: FilterExpression(tag)})
    made.startup()


def _next(found: queue.Queue[str], count: int) -> list[str]:
    return [found.get(timeout=_PATIENCE_S) for _ in range(count)]


# --- each returns what should be, and what is ---


def send() -> tuple[Any, Any]:
    producer = _producer("normal")
    producer.send(_message("normal", "one", tag="sends"))
    producer.send_async(_message("normal", "two", tag="sends")).result(_PATIENCE_S)
    found = _bodies(_simple("sending", "normal", FilterExpression("sends")), 2)
    return ["one", "two"], sorted(found)


def tags() -> tuple[Any, Any]:
    producer = _producer("normal")
    for at in range(4, 8):
        sent = _message("normal", f"m{at}", tag=f"t{at % 2}", keys=f"k{at}")
        sent.add_property("n", str(at))
        producer.send(sent)
    found = _bodies(_simple("tags", "normal", FilterExpression("t1||t3")), 2)
    return ["m5", "m7"], sorted(found)


def sql_filters() -> tuple[Any, Any]:
    found = _bodies(_simple("sql", "normal", FilterExpression("n > 5", FilterType.SQL)), 2)
    return ["m6", "m7"], sorted(found)


def orderly() -> tuple[Any, Any]:
    producer, expected = _producer("ordered"), [str(at) for at in range(20)]
    for each in expected:
        producer.send(_message("ordered", each, message_group="one", tag="orders"))
    return expected, _bodies(_simple("ordering", "ordered", FilterExpression("orders")), 20, 4)


def pop() -> tuple[Any, Any]:
    _producer("normal").send(_message("normal", "popped", tag="pops"))
    consumer = _simple("popping", "normal", FilterExpression("pops"))
    first = None
    while first is None:
        first = next(iter(consumer.receive(1, 30) or []), None)
    consumer.change_invisible_duration(first, 10)
    return ["popped"], _bodies(consumer, 1)


def timed() -> tuple[Any, Any]:
    due_s = time.time() + 2
    _producer("delayed").send(
        _message("delayed", "late", tag="times", delivery_timestamp=int(due_s))
    )
    found = _bodies(_simple("delaying", "delayed", FilterExpression("times")), 1)
    return (["late"], False), (found, time.time() < due_s - 1)


def recall() -> tuple[Any, Any]:
    producer, due_s = _producer("delayed"), int(time.time()) + 4
    more = {"tag": "recalls", "delivery_timestamp": due_s}
    sent = producer.send(_message("delayed", "recalled", **more))
    producer.recall_message("delayed", sent.recall_handle)
    producer.send(_message("delayed", "last", **{**more, "delivery_timestamp": due_s + 2}))
    return ["last"], _bodies(_simple("recalling", "delayed", FilterExpression("recalls")), 1)


def transactions() -> tuple[Any, Any]:
    producer = _producer("half")
    for each in ("committed", "rolled", "open-no", "open-yes"):
        transaction = producer.begin_transaction()
        producer.send(_message("half", each), transaction)
        if each == "committed":
            transaction.commit()
        elif each == "rolled":
            transaction.rollback()
    found = _bodies(_simple("halves", "half", FilterExpression()), 2)
    return (["committed", "open-yes"], True), (sorted(found), "open-yes" in _CHECKED)


def retries() -> tuple[Any, Any]:
    attempts: queue.Queue[str] = queue.Queue()

    def consume(found: Any) -> Any:
        attempts.put(str(found.delivery_attempt))
        return ConsumeResult.FAILURE if found.delivery_attempt < 2 else ConsumeResult.SUCCESS

    _producer("normal").send(_message("normal", "again", tag="retries"))
    _pushed("retrying", "normal", "retries", consume)
    return ["1", "2"], _next(attempts, 2)


def dead_letters() -> tuple[Any, Any]:
    _producer("ordered").send(_message("ordered", "dead", tag="deaths", message_group="g"))
    _pushed("dying", "ordered", "deaths", lambda _: ConsumeResult.FAILURE)
    return ["dead"], _bodies(_simple("burying", "%DLQ%dying", FilterExpression()), 1)


def priority() -> tuple[Any, Any]:
    producer = _producer("jobs")
    for each in range(4):
        producer.send(_message("jobs", f"p{each}", priority=each))
    return ["p3", "p2", "p1", "p0"], _bodies(_simple("working", "jobs", FilterExpression()), 4, 1)


def lite_topics() -> tuple[Any, Any]:
    got: queue.Queue[str] = queue.Queue()

    def consume(found: Any) -> Any:
        got.put(f"{found.lite_topic} {found.body.decode()}")
        return ConsumeResult.SUCCESS

    consumer = LitePushConsumer(_SETTINGS, "chatting", "chats", _Listener(consume))
    consumer.startup()
    consumer.subscribe_lite("ann")
    producer = _producer("chats")
    for name in ("bob", "ann"):
        producer.send(_message("chats", f"to {name}", lite_topic=name))
    first = _next(got, 1)
    consumer.subscribe_lite("bob")
    return ["ann to ann", "bob to bob"], first + _next(got, 1)


_FEATURES: Final[dict[str, Callable[[], tuple[Any, Any]]]] = {
    "send": send,
    "tags": tags,
    "SQL filters": sql_filters,
    "orderly": orderly,
    "pop": pop,
    "timed": timed,
    "recall": recall,
    "transactions": transactions,
    "retries": retries,
    "dead letters": dead_letters,
    "priority": priority,
    "Lite topics": lite_topics,
}

for name, feature in _FEATURES.items():
    try:
        expected, is_so = feature()
        said = "yes" if expected == is_so else f"not {expected}, but {is_so}"
    except Exception as error:  # noqa: BLE001  # any failure of the client is the outcome to print
        said = repr(error)
    sys.stdout.write(f"= {name}: {said}\n")
sys.stdout.write("= end: reached\n")
sys.stdout.flush()
os._exit(0)
