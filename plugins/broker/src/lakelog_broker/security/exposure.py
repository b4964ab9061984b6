"""Refuses to serve everybody at an address that other machines reach."""

from __future__ import annotations

import ipaddress

from lakelog.errors import SettingsError
from lakelog_broker.settings import BrokerSettings


def refuse_exposed(settings: BrokerSettings) -> None:
    """Raise :class:`SettingsError` where every client would be an administrator."""
    if not settings.allow_anonymous and not is_loopback(settings.host):
        raise SettingsError(
            f"the broker would serve everybody at {settings.host}: give a users file, "
            "or set allow_anonymous = true, or bind 127.0.0.1"
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches ``host``."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
