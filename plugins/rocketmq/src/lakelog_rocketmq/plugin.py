"""The plugin that offers the settings format ``broker-conf``."""

from __future__ import annotations

from collections.abc import Sequence

from lakelog.hooks import Context, Factory, Kind, NoSettings, SettingsFormat
from lakelog.hooks.hookspecs import hookimpl


@hookimpl
def lakelog_settings_formats() -> Sequence[Factory]:
    """Offer the settings format ``broker-conf``."""
    summary = "RocketMQ's settings file broker.conf"
    return [Factory(Kind.SETTINGS_FORMAT, "broker-conf", NoSettings, _make, summary)]


def _make(_: NoSettings, context: Context) -> SettingsFormat:
    from lakelog_rocketmq.broker_conf import BrokerConf  # most stores have no such file

    return BrokerConf(context.path)
