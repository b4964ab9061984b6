"""Refuses to serve without users at an address that other machines can reach."""

from __future__ import annotations

import ipaddress

from lakelog.errors import SettingsError
from lakelog_broker.settings import BrokerSettings


def refuse_exposed(settings: BrokerSettings) -> None:
    """Raise :class:`SettingsError` if other machines can reach the address.

    Called without users, when every client is an administrator; ``allow_anonymous`` permits it.
    """
    if not settings.allow_anonymous and not is_loopback(settings.host):
        raise SettingsError(
            f"the broker would serve everybody at {settings.host}: give a users file, "
            "or set allow_anonymous = true, or bind 127.0.0.1"
        )


def is_loopback(host: str) -> bool:
    """Whether ``host`` is a loopback address, which only this machine can reach."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
