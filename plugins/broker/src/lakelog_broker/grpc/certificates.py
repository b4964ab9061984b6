"""The certificate of the TLS port: from given files, or self-signed by this process."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Final

from lakelog.errors import SettingsError

_VALID_DAYS: Final = 3650


def key_and_certificate(
    certificate: Path | None, key: Path | None, host: str
) -> tuple[bytes, bytes]:
    """The private key and the certificate as PEM bytes; without files, a self-signed pair.

    :param host: name for the ``subjectAltName`` of a self-signed certificate

    Raises :class:`~lakelog.errors.SettingsError` for a file that cannot be read or if only one is
    given, and ``ImportError`` if ``cryptography`` is needed and missing.
    """
    if (certificate is None) != (key is None):
        raise SettingsError("certificate and key must be given together")
    if certificate is None or key is None:
        return _self_made(host)
    try:
        return key.read_bytes(), certificate.read_bytes()
    except OSError as error:
        raise SettingsError(f"the certificate cannot be read: {error}") from error


def _self_made(host: str) -> tuple[bytes, bytes]:
    """Make a self-signed certificate, as RocketMQ's proxy does; its clients accept any."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "lakelog")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=_VALID_DAYS))
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.DNSName(host)]), False
        )
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private, made.public_bytes(pem)
