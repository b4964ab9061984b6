"""TLS: both sides show a certificate of one authority, or nothing is sent."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from lakelog.errors import SettingsError
from lakelog_testing import FakeReplicatedLog, ScriptedSlave
from plugins.replication.tests.certificates import CertificateAuthority
from plugins.replication.tests.masters import make, serving


@pytest.fixture
def log(tmp_path: Path) -> FakeReplicatedLog:
    return FakeReplicatedLog(tmp_path / "commitlog")


@pytest.fixture
def authority(tmp_path: Path) -> CertificateAuthority:
    return CertificateAuthority(tmp_path / "certificates", "ours")


def test_a_slave_without_a_certificate_of_the_authority_gets_nothing(
    log: FakeReplicatedLog,
    tmp_path: Path,
    authority: CertificateAuthority,
    caplog: pytest.LogCaptureFixture,
) -> None:
    log.append(1000)
    other = CertificateAuthority(tmp_path / "certificates", "theirs").issue("slave")
    with serving(log, tmp_path, **authority.issue("master")) as master:
        assert master.port is not None
        for certificate in (None, other):
            with pytest.raises((EOFError, ssl.SSLError)):
                _first_frame(master.port, authority.client(certificate))
        with pytest.raises(EOFError):
            _first_frame(master.port, None)
    assert "it shows no certificate that is accepted here" in caplog.text


def _first_frame(port: int, tls: ssl.SSLContext | None) -> bytes:
    with ScriptedSlave(port, tls=tls) as peer:
        peer.report(1)
        return peer.frame()[1]


def test_files_that_cannot_be_used_are_an_error_at_open(
    tmp_path: Path, authority: CertificateAuthority
) -> None:
    files = authority.issue("master")
    files["key"].write_text("this is no key")
    with pytest.raises(SettingsError, match="certificate, key and authority cannot be used"):
        make(tmp_path, **files).lead()


def test_a_certificate_alone_is_an_error(authority: CertificateAuthority, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="are given together, or none of them"):
        make(tmp_path, certificate=authority.issue("master")["certificate"])
