"""The table of the remoting protocol's requests: code, handler, and the rights that it needs.

A new request code is a row of :class:`RequestCode`; its handler is a function of a module beside
this one, which takes the connection and the request. Sources: RocketMQ 5.3.3, ``RequestCode``, and
4.9, ``PlainAccessValidator``. Here more requests need an administrator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum, unique
from typing import Final, TypeAlias

from lakelog_broker.broker import Broker
from lakelog_broker.codes import Forbidden, Invalid
from lakelog_broker.remoting.frame import RemotingCommand
from lakelog_broker.security import AccessControl, AccessRight, Use

_Rights: TypeAlias = Callable[[Broker, RemotingCommand], Iterator[Use]]
"""The uses that the user of a request must be allowed."""
_PUB, _SUB = AccessRight.PUB, AccessRight.SUB


def _sends(field: str) -> _Rights:
    def uses(_broker: Broker, request: RemotingCommand) -> Iterator[Use]:
        yield Use(_PUB, topic=request.fields[field])

    return uses


def _reads(*names: str) -> _Rights:
    """Uses of a request that reads the topics and groups in the fields ``names``."""

    def uses(_broker: Broker, request: RemotingCommand) -> Iterator[Use]:
        for name in names:
            value = request.fields.get(name, "")
            yield Use(_SUB, topic=value) if name == "topic" else Use(_SUB, group=value)

    return uses


def _sends_back(broker: Broker, request: RemotingCommand) -> Iterator[Use]:
    yield Use(_SUB, group=request.fields["group"])
    yield Use(_SUB, topic=request.fields.get("originTopic", ""))
    # The topic is read from the stored message: a client may send none, or a wrong one.
    yield Use(_SUB, topic=broker.store.look_up(int(request.fields["offset"])).topic)


def _ends_transaction(broker: Broker, request: RemotingCommand) -> Iterator[Use]:
    fields = request.fields
    yield Use(_PUB, topic=fields.get("topic", ""))  # clients before 5.3 do not send it
    place = int(fields["commitLogOffset"]), int(fields["tranStateTableOffset"])
    yield Use(_PUB, topic=broker.transactions.topic_of(*place) or "")


def _heart_beat(_broker: Broker, request: RemotingCommand) -> Iterator[Use]:
    for each in request.content().get("consumerDataSet") or ():
        yield Use(_SUB, group=each["groupName"])
        for data in each.get("subscriptionDataSet") or ():
            yield Use(_SUB, topic=data["topic"])


def _locks(_broker: Broker, request: RemotingCommand) -> Iterator[Use]:
    content = request.content()
    yield Use(_SUB, group=content["consumerGroup"])
    for queue in content["mqSet"]:
        yield Use(_SUB, topic=queue["topic"])


def _acknowledges(_broker: Broker, request: RemotingCommand) -> Iterator[Use]:
    for each in request.content().get("acks") or ():
        yield Use(_SUB, group=each["c"])
        yield Use(_SUB, topic=each["t"])


def _asks_for_queues(_broker: Broker, request: RemotingCommand) -> Iterator[Use]:
    content = request.content()
    yield Use(_SUB, group=content["consumerGroup"])
    yield Use(_SUB, topic=content["topic"])


def _nothing(_broker: Broker, _request: RemotingCommand) -> Iterator[Use]:
    return iter(())


@unique
class RequestCode(IntEnum):
    """The requests that this broker serves, or sends to clients.

    :ivar handler: ``module:function``; empty for a request that only the broker sends. The module
        is imported by its first request, so that the start of a broker takes less CPU time
    :ivar rights: ``None`` for a request that only an administrator may send
    :ivar completes: whether it is completed after its client has disconnected, not cancelled
    """

    handler: str
    rights: _Rights | None
    completes: bool

    def __new__(
        cls, code: int, handler: str = "", rights: _Rights | None = None, completes: bool = False
    ) -> RequestCode:
        """Make a row of the table."""
        row = int.__new__(cls, code)
        row._value_ = code
        row.handler, row.rights, row.completes = handler, rights, completes
        return row

    SEND_MESSAGE = 10, "sending:send", _sends("topic"), True
    PULL_MESSAGE = 11, "consuming:pull", _reads("topic", "consumerGroup")
    QUERY_MESSAGE = 12, "consuming:messages_of_key", _reads("topic")
    QUERY_CONSUMER_OFFSET = 14, "consuming:group_offset", _reads("topic", "consumerGroup")
    UPDATE_CONSUMER_OFFSET = 15, "consuming:commit_offset", _reads("topic", "consumerGroup")
    UPDATE_AND_CREATE_TOPIC = 17, "administration:create_topic"
    GET_ALL_TOPIC_CONFIG = 21, "administration:topics_file"
    UPDATE_BROKER_CONFIG = 25, "administration:update_config"
    GET_BROKER_CONFIG = 26, "administration:config"
    GET_BROKER_RUNTIME_INFO = 28, "administration:runtime_info"
    SEARCH_OFFSET_BY_TIMESTAMP = 29, "consuming:offset_by_time", _reads("topic")
    GET_MAX_OFFSET = 30, "consuming:end_offset", _reads("topic")
    GET_MIN_OFFSET = 31, "consuming:first_offset", _reads("topic")
    GET_EARLIEST_MSG_STORETIME = 32, "consuming:earliest_time", _reads("topic")
    VIEW_MESSAGE_BY_ID = 33, "consuming:message_at"
    HEART_BEAT = 34, "groups:heart_beat", _heart_beat
    UNREGISTER_CLIENT = 35, "groups:unregister", _reads("consumerGroup")
    CONSUMER_SEND_MSG_BACK = 36, "sending:send_back", _sends_back, True
    END_TRANSACTION = 37, "sending:end_transaction", _ends_transaction
    GET_CONSUMER_LIST_BY_GROUP = 38, "groups:consumer_ids", _reads("consumerGroup")
    CHECK_TRANSACTION_STATE = 39
    NOTIFY_CONSUMER_IDS_CHANGED = 40
    LOCK_BATCH_MQ = 41, "groups:lock", _locks
    UNLOCK_BATCH_MQ = 42, "groups:unlock", _locks
    GET_ALL_CONSUMER_OFFSET = 43, "administration:consumer_offsets_file"
    GET_ALL_DELAY_OFFSET = 45, "administration:delay_offsets_file"
    CHECK_CLIENT_CONFIG = 46, "groups:check_config", _nothing
    PUT_KV_CONFIG = 100, "administration:set_value"
    GET_KV_CONFIG = 101, "administration:get_value"
    DELETE_KV_CONFIG = 102, "administration:delete_value"
    GET_ROUTEINFO_BY_TOPIC = 105, "administration:route", _nothing
    GET_BROKER_CLUSTER_INFO = 106, "administration:cluster", _nothing
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200, "groups:set_group"
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG = 201, "administration:groups_file"
    GET_TOPIC_STATS_INFO = 202, "administration:topic_stats"
    GET_CONSUMER_CONNECTION_LIST = 203, "groups:consumers"
    GET_PRODUCER_CONNECTION_LIST = 204, "groups:producers"
    GET_ALL_TOPIC_LIST_FROM_NAMESERVER = 206, "administration:all_names"
    DELETE_SUBSCRIPTIONGROUP = 207, "groups:delete_group"
    GET_CONSUME_STATS = 208, "groups:progress"
    DELETE_TOPIC_IN_BROKER = 215, "administration:delete_topic"
    DELETE_TOPIC_IN_NAMESRV = 216, "administration:delete_route"
    GET_KVLIST_BY_NAMESPACE = 219, "administration:values_of_namespace"
    RESET_CONSUMER_CLIENT_OFFSET = 220
    GET_CONSUMER_STATUS_FROM_CLIENT = 221
    INVOKE_BROKER_TO_RESET_OFFSET = 222, "groups:reset_offsets"
    INVOKE_BROKER_TO_GET_CONSUMER_STATUS = 223, "groups:consumer_offsets"
    GET_TOPICS_BY_CLUSTER = 224, "administration:topics_of_cluster"
    QUERY_TOPIC_CONSUME_BY_WHO = 300, "groups:groups_of_topic"
    QUERY_CONSUME_TIME_SPAN = 303, "groups:time_span"
    GET_SYSTEM_TOPIC_LIST_FROM_NS = 304, "administration:system_names"
    GET_SYSTEM_TOPIC_LIST_FROM_BROKER = 305, "administration:system_topics"
    GET_CONSUMER_RUNNING_INFO = 307, "groups:running_info"
    CONSUME_MESSAGE_DIRECTLY = 309, "groups:consume"
    SEND_MESSAGE_V2 = 310, "sending:send", _sends("b"), True
    CLONE_GROUP_OFFSET = 314, "groups:clone_offsets"
    VIEW_BROKER_STATS_DATA = 315, "administration:rates"
    GET_BROKER_CONSUME_STATS = 317, "groups:all_progress"
    GET_NAMESRV_CONFIG = 319, "administration:name_server_config"
    SEND_BATCH_MESSAGE = 320, "sending:send", _sends("b"), True
    QUERY_CONSUME_QUEUE = 321, "administration:units"
    SEND_REPLY_MESSAGE = 324, "sending:reply", _sends("topic")
    SEND_REPLY_MESSAGE_V2 = 325, "sending:reply", _sends("b")
    PUSH_REPLY_MESSAGE_TO_CLIENT = 326
    GET_ALL_PRODUCER_INFO = 328, "groups:all_producers"
    QUERY_TOPICS_BY_CONSUMER = 343, "groups:topics_of_group"
    QUERY_SUBSCRIPTION_BY_CONSUMER = 345, "groups:subscription"
    GET_TOPIC_CONFIG = 351, "administration:topic_config"
    GET_SUBSCRIPTIONGROUP_CONFIG = 352, "groups:group_config"
    LITE_PULL_MESSAGE = 361, "consuming:pull", _reads("topic", "consumerGroup")
    RECALL_MESSAGE = 370, "sending:recall", _sends("topic")
    QUERY_ASSIGNMENT = 400, "consuming:assignment", _asks_for_queues
    SET_MESSAGE_REQUEST_MODE = 401, "consuming:set_mode"
    POP_MESSAGE = 200050, "consuming:pop", _reads("topic", "consumerGroup")
    ACK_MESSAGE = 200051, "consuming:acknowledge", _reads("topic", "consumerGroup")
    PEEK_MESSAGE = 200052, "consuming:peek", _reads("topic", "consumerGroup")
    CHANGE_MESSAGE_INVISIBLETIME = 200053, "consuming:change", _reads("topic", "consumerGroup")
    NOTIFICATION = 200054, "consuming:notify", _reads("topic", "consumerGroup")
    BATCH_ACK_MESSAGE = 200151, "consuming:acknowledge_batch", _acknowledges


REQUESTS: Final = {int(each): each for each in RequestCode if each.handler}
"""The requests that are served."""


def check_user(access: AccessControl, broker: Broker, request: RemotingCommand) -> None:
    """Check the signature of a request and the rights of its user.

    A code that is not in the table needs an administrator. Raises :class:`Refused`, and
    ``KeyError`` for a missing field.
    """
    user = access.remoting_user(request)
    if user.admin:
        return
    row = REQUESTS.get(request.code)
    if row is None or row.rights is None:
        raise Forbidden(f"{user.access_key} is no administrator, as request {request.code} needs")
    try:
        for use in row.rights(broker, request):
            use.require_of(user)
    except (TypeError, AttributeError) as error:
        raise Invalid(f"the body has values of other types: {error}") from None
