"""The table of the remoting protocol's requests: code and handler.

A new request code is a row of :class:`RequestCode`; its handler is a function of a module beside
this one, which takes the connection and the request. The rights that it needs are a row of
:data:`lakelog_broker.rights.NAMES`. Source: RocketMQ 5.3.3, ``RequestCode``.
"""

from __future__ import annotations

from enum import IntEnum, unique
from typing import Final

from lakelog_broker import rights
from lakelog_broker.broker import Broker
from lakelog_broker.remoting.frame import RemotingCommand
from lakelog_broker.security import User


@unique
class RequestCode(IntEnum):
    """The requests that this broker serves, or sends to clients.

    :ivar handler: ``module:function``; empty for a request that only the broker sends. The module
        is imported by its first request, so that the start of a broker takes less CPU time
    :ivar completes: whether it is completed after its client has disconnected, not cancelled
    """

    handler: str
    completes: bool

    def __new__(cls, code: int, handler: str = "", completes: bool = False) -> RequestCode:
        """Make a row of the table."""
        row = int.__new__(cls, code)
        row._value_ = code
        row.handler, row.completes = handler, completes
        return row

    SEND_MESSAGE = 10, "sending:send", True
    PULL_MESSAGE = 11, "consuming:pull"
    QUERY_MESSAGE = 12, "consuming:messages_of_key"
    QUERY_CONSUMER_OFFSET = 14, "consuming:group_offset"
    UPDATE_CONSUMER_OFFSET = 15, "consuming:commit_offset"
    UPDATE_AND_CREATE_TOPIC = 17, "administration:create_topic"
    GET_ALL_TOPIC_CONFIG = 21, "administration:topics_file"
    UPDATE_BROKER_CONFIG = 25, "administration:update_config"
    GET_BROKER_CONFIG = 26, "administration:config"
    GET_BROKER_RUNTIME_INFO = 28, "administration:runtime_info"
    SEARCH_OFFSET_BY_TIMESTAMP = 29, "consuming:offset_by_time"
    GET_MAX_OFFSET = 30, "consuming:end_offset"
    GET_MIN_OFFSET = 31, "consuming:first_offset"
    GET_EARLIEST_MSG_STORETIME = 32, "consuming:earliest_time"
    VIEW_MESSAGE_BY_ID = 33, "consuming:message_at"
    HEART_BEAT = 34, "groups:heart_beat"
    UNREGISTER_CLIENT = 35, "groups:unregister"
    CONSUMER_SEND_MSG_BACK = 36, "sending:send_back", True
    END_TRANSACTION = 37, "sending:end_transaction"
    GET_CONSUMER_LIST_BY_GROUP = 38, "groups:consumer_ids"
    CHECK_TRANSACTION_STATE = 39
    NOTIFY_CONSUMER_IDS_CHANGED = 40
    LOCK_BATCH_MQ = 41, "groups:lock"
    UNLOCK_BATCH_MQ = 42, "groups:unlock"
    GET_ALL_CONSUMER_OFFSET = 43, "administration:consumer_offsets_file"
    GET_ALL_DELAY_OFFSET = 45, "administration:delay_offsets_file"
    CHECK_CLIENT_CONFIG = 46, "groups:check_config"
    PUT_KV_CONFIG = 100, "administration:set_value"
    GET_KV_CONFIG = 101, "administration:get_value"
    DELETE_KV_CONFIG = 102, "administration:delete_value"
    GET_ROUTEINFO_BY_TOPIC = 105, "administration:route"
    GET_BROKER_CLUSTER_INFO = 106, "administration:cluster"
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
    SEND_MESSAGE_V2 = 310, "sending:send", True
    CLONE_GROUP_OFFSET = 314, "groups:clone_offsets"
    VIEW_BROKER_STATS_DATA = 315, "administration:rates"
    GET_BROKER_CONSUME_STATS = 317, "groups:all_progress"
    GET_NAMESRV_CONFIG = 319, "administration:name_server_config"
    SEND_BATCH_MESSAGE = 320, "sending:send", True
    QUERY_CONSUME_QUEUE = 321, "administration:units"
    SEND_REPLY_MESSAGE = 324, "sending:reply"
    SEND_REPLY_MESSAGE_V2 = 325, "sending:reply"
    PUSH_REPLY_MESSAGE_TO_CLIENT = 326
    GET_ALL_PRODUCER_INFO = 328, "groups:all_producers"
    QUERY_TOPICS_BY_CONSUMER = 343, "groups:topics_of_group"
    QUERY_SUBSCRIPTION_BY_CONSUMER = 345, "groups:subscription"
    GET_TOPIC_CONFIG = 351, "administration:topic_config"
    GET_SUBSCRIPTIONGROUP_CONFIG = 352, "groups:group_config"
    LITE_PULL_MESSAGE = 361, "consuming:pull"
    RECALL_MESSAGE = 370, "sending:recall"
    QUERY_ASSIGNMENT = 400, "consuming:assignment"
    SET_MESSAGE_REQUEST_MODE = 401, "consuming:set_mode"
    POP_MESSAGE = 200050, "consuming:pop"
    ACK_MESSAGE = 200051, "consuming:acknowledge"
    PEEK_MESSAGE = 200052, "consuming:peek"
    CHANGE_MESSAGE_INVISIBLETIME = 200053, "consuming:change"
    NOTIFICATION = 200054, "consuming:notify"
    BATCH_ACK_MESSAGE = 200151, "consuming:acknowledge_batch"


REQUESTS: Final = {int(each): each for each in RequestCode if each.handler}
"""The requests that are served."""


def check_rights(broker: Broker, user: User, request: RemotingCommand) -> None:
    """Check the rights of the user of a request.

    A code that is not in the table needs an administrator. Raises :class:`Refused`, and
    ``KeyError`` for a missing field.
    """
    if not user.admin:
        row = REQUESTS.get(request.code)
        parts = {"fields": lambda: request.fields, "body": request.content}
        name = str(request.code) if row is None else row.name
        rights.check(broker, user, name, parts, lambda value: value)
