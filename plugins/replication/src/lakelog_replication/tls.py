"""TLS between lakelog stores: both sides present a certificate of one authority."""

from __future__ import annotations

import ssl

from lakelog.errors import SettingsError
from lakelog_replication.settings import RocketmqHaSettings


def tls_context(settings: RocketmqHaSettings, purpose: ssl.Purpose) -> ssl.SSLContext | None:
    """The TLS context for one side; ``None`` without certificates, as with RocketMQ.

    :param purpose: ``CLIENT_AUTH`` for a master, which slaves connect to; ``SERVER_AUTH`` for a
        slave

    Raises :class:`~lakelog.errors.SettingsError` if a file cannot be used.
    """
    if settings.certificate is None:
        return None
    try:
        context = ssl.create_default_context(purpose, cafile=settings.authority)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(settings.certificate, settings.key)
    except OSError as error:  # ssl.SSLError is one
        files = (settings.certificate, settings.key, settings.authority)
        raise SettingsError(
            f"rocketmq-ha: the files certificate, key and authority cannot be used: {error}; they "
            f"must be PEM files, and are {', '.join(map(str, files))}"
        ) from error
    return context
