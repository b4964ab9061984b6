"""Checks remoting requests, including those that name a stored message instead of a topic."""

from __future__ import annotations

from lakelog_broker.broker import Broker
from lakelog_broker.codes import RequestCode
from lakelog_broker.security.access import AccessControl
from lakelog_broker.security.requests import Request
from lakelog_broker.security.users import AccessRight


class StoredTopicAccess:
    """Checks the user of a request, also against the topic of a stored message that it names."""

    def __init__(self, broker: Broker) -> None:
        """Read the users; raises :class:`~lakelog.errors.SettingsError`."""
        self._broker, self._access = broker, AccessControl.of(broker.settings)

    def check(self, request: Request) -> None:
        """Raise :class:`~lakelog_broker.codes.Refused` if the user may not send the request."""
        user, fields = self._access.check_remoting(request), request.fields
        if user.admin:
            return
        # The topic is read from the stored message: a client may send none, or a wrong one.
        if request.code == RequestCode.END_TRANSACTION:
            place = int(fields["commitLogOffset"]), int(fields["tranStateTableOffset"])
            topic = self._broker.transactions.topic_of(*place) or ""
            self._access.require(user, AccessRight.PUB, topic=topic)
        elif request.code == RequestCode.CONSUMER_SEND_MSG_BACK:
            topic = self._broker.store.look_up(int(fields["offset"])).topic
            self._access.require(user, AccessRight.SUB, topic=topic)
