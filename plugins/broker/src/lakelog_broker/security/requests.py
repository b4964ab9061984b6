"""The topics and groups that a remoting request uses.

Source: RocketMQ 4.9, ``PlainAccessValidator``. Here more requests need an administrator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, Protocol, TypeAlias

import attrs

from lakelog_broker.bodies import body_of
from lakelog_broker.codes import Refused, RequestCode, ResponseCode
from lakelog_broker.security.users import AccessRight, User
from lakelog_queues.groups.set_aside import RETRY_PREFIX

_PUB, _SUB = AccessRight.PUB, AccessRight.SUB


class Request(Protocol):
    """The parts of a remoting command that access control reads."""

    code: int
    fields: dict[str, str]
    body: bytes
    version: int


@attrs.frozen
class Use:
    """An operation on a topic, or on a group."""

    operation: AccessRight
    topic: str = ""
    group: str = ""

    def allowed_to(self, user: User) -> bool:
        """Whether ``user`` may do it; a retry topic needs the right to its group."""
        if self.topic.startswith(RETRY_PREFIX):
            return user.allows(_SUB, group=self.topic.removeprefix(RETRY_PREFIX))
        return user.allows(self.operation, topic=self.topic, group=self.group)

    def __str__(self) -> str:
        named = f"the topic {self.topic}" if self.topic else f"the group {self.group}"
        return f"{self.operation.name} of {named}"


_Uses: TypeAlias = Callable[[Request], Iterator[Use]]


def _sends(field: str) -> _Uses:
    def uses(request: Request) -> Iterator[Use]:
        yield Use(_PUB, topic=request.fields[field])

    return uses


def _reads(*names: str) -> _Uses:
    """Uses of a request that reads the topics and groups in the fields ``names``."""

    def uses(request: Request) -> Iterator[Use]:
        for name in names:
            value = request.fields.get(name)
            if value and name.lower().endswith("topic"):
                yield Use(_SUB, topic=value)
            elif value:
                yield Use(_SUB, group=value)

    return uses


def _sends_back(request: Request) -> Iterator[Use]:
    yield Use(_SUB, group=request.fields["group"])
    if request.fields.get("originTopic"):
        yield Use(_SUB, topic=request.fields["originTopic"])


def _heart_beat(request: Request) -> Iterator[Use]:
    for each in body_of(request).get("consumerDataSet") or ():
        yield Use(_SUB, group=each["groupName"])
        for data in each.get("subscriptionDataSet") or ():
            yield Use(_SUB, topic=data["topic"])


def _locks(request: Request) -> Iterator[Use]:
    content = body_of(request)
    yield Use(_SUB, group=content["consumerGroup"])
    for queue in content["mqSet"]:
        yield Use(_SUB, topic=queue["topic"])


def _acknowledges(request: Request) -> Iterator[Use]:
    for each in body_of(request).get("acks") or ():
        yield Use(_SUB, group=each["c"])
        yield Use(_SUB, topic=each["t"])


def _asks_for_queues(request: Request) -> Iterator[Use]:
    content = body_of(request)
    yield Use(_SUB, group=content["consumerGroup"])
    yield Use(_SUB, topic=content["topic"])


def _ends_transaction(request: Request) -> Iterator[Use]:
    if request.fields.get("topic"):  # clients before 5.3 do not send it
        yield Use(_PUB, topic=request.fields["topic"])


def _nothing(_request: Request) -> Iterator[Use]:
    return iter(())


_USES: Final[Mapping[int, _Uses]] = {
    RequestCode.SEND_MESSAGE: _sends("topic"),
    RequestCode.SEND_MESSAGE_V2: _sends("b"),
    RequestCode.SEND_BATCH_MESSAGE: _sends("b"),
    RequestCode.SEND_REPLY_MESSAGE: _sends("topic"),
    RequestCode.SEND_REPLY_MESSAGE_V2: _sends("b"),
    RequestCode.CONSUMER_SEND_MSG_BACK: _sends_back,
    RequestCode.PULL_MESSAGE: _reads("topic", "consumerGroup"),
    RequestCode.LITE_PULL_MESSAGE: _reads("topic", "consumerGroup"),
    RequestCode.QUERY_MESSAGE: _reads("topic"),
    RequestCode.HEART_BEAT: _heart_beat,
    RequestCode.CHECK_CLIENT_CONFIG: _nothing,
    RequestCode.UNREGISTER_CLIENT: _reads("consumerGroup"),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _reads("consumerGroup"),
    RequestCode.QUERY_CONSUMER_OFFSET: _reads("topic", "consumerGroup"),
    RequestCode.UPDATE_CONSUMER_OFFSET: _reads("topic", "consumerGroup"),
    RequestCode.LOCK_BATCH_MQ: _locks,
    RequestCode.UNLOCK_BATCH_MQ: _locks,
    RequestCode.POP_MESSAGE: _reads("topic", "consumerGroup"),
    RequestCode.ACK_MESSAGE: _reads("topic", "consumerGroup"),
    RequestCode.BATCH_ACK_MESSAGE: _acknowledges,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: _reads("topic", "consumerGroup"),
    RequestCode.NOTIFICATION: _reads("topic", "consumerGroup"),
    RequestCode.PEEK_MESSAGE: _reads("topic", "consumerGroup"),
    RequestCode.QUERY_ASSIGNMENT: _asks_for_queues,
    RequestCode.RECALL_MESSAGE: _sends("topic"),
    RequestCode.END_TRANSACTION: _ends_transaction,
    RequestCode.GET_ROUTEINFO_BY_TOPIC: _nothing,
    RequestCode.GET_BROKER_CLUSTER_INFO: _nothing,
    RequestCode.GET_MAX_OFFSET: _reads("topic"),
    RequestCode.GET_MIN_OFFSET: _reads("topic"),
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: _reads("topic"),
    RequestCode.GET_EARLIEST_MSG_STORETIME: _reads("topic"),
}


def uses_of(request: Request) -> list[Use] | None:
    """The uses that must be allowed; ``None`` for a request that only an administrator may send.

    A code that is not in the table needs an administrator, so that a new code is closed until it is
    listed. Raises ``KeyError`` for a missing field, and :class:`Refused` for a malformed body.
    """
    uses = _USES.get(request.code)
    try:
        return None if uses is None else list(uses(request))
    except (TypeError, AttributeError) as error:
        remark = f"the body has values of other types: {error}"
        raise Refused(ResponseCode.INVALID_PARAMETER, remark) from None
