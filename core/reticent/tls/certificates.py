"""A folder of certificates from a small certificate authority.

All keys are ECDSA over P-256, which every TLS library supports. Validity is checked against the machine's clock, as TLS
does, unless the time is given.

    folder/ca.crt            the authority's certificate, for every party
    folder/ca.key            its private key, for issuing certificates only
    folder/keys.*            certificate and private key of the key server
    folder/aggregation.*     of the aggregation server
    folder/ads.*             of the ad service
    folder/NAME.*            of each analyst
"""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from reticent.clock import SystemClock
from reticent.protocol.channels import AD_SERVICE, AGGREGATION_SERVER, ANALYST, KEY_SERVER
from reticent.storage.files import OWNER_ONLY, OWNER_ONLY_FOLDER, PUBLIC, replace
from reticent.storage.files import create as put
from reticent.tls._authority import (
    Authority,
    CertificateError,
    common_name,
    host_name,
    hosts_of,
    is_issued_by,
    new_key,
    pem,
)

__all__ = [
    "Certificate",
    "CertificateError",
    "Issued",
    "create",
    "renew",
]

DAYS = 365
"""Default validity of a certificate."""

_AUTHORITY = "ca"
_SERVERS = {"keys": KEY_SERVER, "aggregation": AGGREGATION_SERVER, "ads": AD_SERVICE}
_ANALYST_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,47}")
_OLD = 0.9  # share of its validity after which a certificate should be renewed

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Issued:
    """A certificate that was just issued.

    Args:
        path: Of its file.
        name: Its common name.
        expires: End of its validity.
    """

    path: Path
    name: str
    expires: dt.datetime


@dataclass(frozen=True)
class Certificate:
    """The certificate of one party, with its private key and the authority's certificate.

    Args:
        name: Its common name.
        authority: The authority's certificate, in PEM.
        certificate: The party's own, in PEM.
        key: Its private key, in PEM.
        expires: End of its validity.
    """

    name: str
    authority: bytes = field(repr=False)
    certificate: bytes = field(repr=False)
    key: bytes = field(repr=False)
    expires: dt.datetime

    @classmethod
    def load(cls, folder: str | Path, name: str, now: dt.datetime | None = None) -> Self:
        """The certificate of "keys", "aggregation", "ads" or an analyst; the folder needs no files of other parties.

        Raises:
            CertificateError: It has expired, another authority issued it, or the private key does not match.
        """
        now = now or SystemClock().now()
        where = Path(folder)
        path = where / f"{name}.crt"
        authority = _certificate(where / f"{_AUTHORITY}.crt")
        certificate = _certificate(path)
        key = _key(where / f"{name}.key")
        if not is_issued_by(certificate, authority):
            raise CertificateError(f"the authority of {where / _AUTHORITY}.crt did not issue {path}")
        if key.public_key() != certificate.public_key():
            raise CertificateError(f"{where / name}.key does not match {path}")
        _check_time(path, certificate, now)
        expires = certificate.not_valid_after_utc
        return cls(common_name(certificate), pem(authority), pem(certificate), pem(key), expires)

    def server_credentials(self, mutual: bool) -> grpc.ServerCredentials:
        """For a listener; with `mutual`, callers must show a certificate of the same authority."""
        return grpc.ssl_server_credentials(
            [(self.key, self.certificate)],
            root_certificates=self.authority if mutual else None,
            require_client_auth=mutual,
        )

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """For a channel that shows the certificate."""
        return grpc.ssl_channel_credentials(self.authority, self.key, self.certificate)


def create(
    folder: str | Path,
    *,
    hosts: Sequence[str],
    analysts: Sequence[str],
    days: int = DAYS,
    now: dt.datetime | None = None,
) -> list[Issued]:
    """Create an authority in a folder, with a certificate for each server and each analyst.

    Args:
        folder: Without certificates; it is created if it does not exist.
        hosts: Names and addresses of the servers.
        analysts: Names of the analysts.
        days: Validity of the certificates.
        now: The present; the machine's clock unless given.
    """
    now = now or SystemClock().now()
    where = Path(folder)
    _check_analysts(analysts)
    if not hosts:
        raise ValueError("the servers' certificates need at least one host")
    named = _distinct([host_name(host) for host in hosts])
    if taken := sorted([*where.glob("*.crt"), *where.glob("*.key")]):
        raise ValueError(f"{taken[0]} exists: name another folder, or renew the certificates in this one")
    authority = Authority.new(now)
    parties = [(each, name, named) for each, name in _SERVERS.items()] + [
        (each, _analyst(each), []) for each in analysts
    ]
    made = [(each, *_new(authority, name, at, days, now)) for each, name, at in parties]
    with contextlib.suppress(FileExistsError):
        where.mkdir(mode=OWNER_ONLY_FOLDER)
    with contextlib.ExitStack() as undo:
        _put_pair(where, _AUTHORITY, authority.key, authority.certificate, undo)
        for each, key, certificate in made:
            _put_pair(where, each, key, certificate, undo)
        undo.pop_all()
    return [_issued(where, each, certificate) for each, _, certificate in made]


def renew(
    folder: str | Path,
    *,
    hosts: Sequence[str] = (),
    analysts: Sequence[str] = (),
    days: int = DAYS,
    now: dt.datetime | None = None,
) -> list[Issued]:
    """Replace all certificates of a folder by new ones for the same private keys.

    Each file is replaced in one step. Only the authority's private key has to be in the folder.

    Args:
        folder: Of the authority.
        hosts: Additional names and addresses of the servers.
        analysts: Names of additional analysts, who get a private key as well.
        days: Validity of the certificates.
        now: The present; the machine's clock unless given.

    Raises:
        CertificateError: Another authority issued a certificate in the folder.
    """
    now = now or SystemClock().now()
    where = Path(folder)
    _check_analysts(analysts)
    further = [host_name(host) for host in hosts]
    authority = _authority(where, now)
    old = {path: _certificate(path) for path in sorted(where.glob("*.crt")) if path.stem != _AUTHORITY}
    for path, certificate in old.items():
        if not is_issued_by(certificate, authority.certificate):
            raise CertificateError(f"the authority of this folder did not issue {path}: remove it")
    for each in analysts:
        if any(path.stem.casefold() == each.casefold() for path in old):
            raise ValueError(f"{each} has a certificate in {where}: it is renewed without being named")
    renewed = {path: _renewed(authority, certificate, further, days, now) for path, certificate in old.items()}
    made = [(each, *_new(authority, _analyst(each), [], days, now)) for each in analysts]
    for path, certificate in renewed.items():
        replace(path, pem(certificate), PUBLIC)
    with contextlib.ExitStack() as undo:
        for each, key, certificate in made:
            _put_pair(where, each, key, certificate, undo)
        undo.pop_all()
    return [_issued(where, path.stem, certificate) for path, certificate in renewed.items()] + [
        _issued(where, each, certificate) for each, _, certificate in made
    ]


def _new(
    authority: Authority, name: str, hosts: Sequence[x509.GeneralName], days: int, now: dt.datetime
) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = new_key()
    return key, authority.certify(key.public_key(), name, hosts, days, now)


def _renewed(
    authority: Authority, old: x509.Certificate, hosts: Sequence[x509.GeneralName], days: int, now: dt.datetime
) -> x509.Certificate:
    before = hosts_of(old)
    key = old.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)  # noqa: S101  # this authority certifies no others
    return authority.certify(key, common_name(old), _distinct([*before, *hosts]) if before else [], days, now)


def _put_pair(
    folder: Path,
    name: str,
    key: ec.EllipticCurvePrivateKey,
    certificate: x509.Certificate,
    undo: contextlib.ExitStack,
) -> None:
    """Write both files; no existing file is overwritten."""
    for path, content, mode in (
        (folder / f"{name}.key", pem(key), OWNER_ONLY),
        (folder / f"{name}.crt", pem(certificate), PUBLIC),
    ):
        put(path, content, mode)
        undo.callback(path.unlink, missing_ok=True)


def _issued(folder: Path, name: str, certificate: x509.Certificate) -> Issued:
    return Issued(folder / f"{name}.crt", common_name(certificate), certificate.not_valid_after_utc)


def _authority(folder: Path, now: dt.datetime) -> Authority:
    path = folder / f"{_AUTHORITY}.crt"
    certificate, key = _certificate(path), _key(folder / f"{_AUTHORITY}.key")
    if key.public_key() != certificate.public_key():
        raise CertificateError(f"{folder / _AUTHORITY}.key does not match {path}")
    _check_time(path, certificate, now)
    return Authority(key, certificate)


def _check_time(path: Path, certificate: x509.Certificate, now: dt.datetime) -> None:
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now >= end:
        raise CertificateError(f"{path} expired at {end:%Y-%m-%d %H:%M} UTC: run `reticent certs renew`")
    if now < begin:
        raise CertificateError(f"{path} is valid from {begin:%Y-%m-%d %H:%M} UTC: is this machine's clock right?")
    if now > begin + _OLD * (end - begin):
        _log.warning("%s expires at %s UTC: run `reticent certs renew`", path, f"{end:%Y-%m-%d %H:%M}")


def _certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except ValueError:
        raise CertificateError(f"{path} is not a certificate in PEM") from None


def _key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (ValueError, TypeError):
        raise CertificateError(f"{path} is not a private key in PEM, or it has a passphrase") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CertificateError(f"{path} is not an ECDSA key")
    return key


def _check_analysts(names: Sequence[str]) -> None:
    for name in names:
        if not _ANALYST_NAME.fullmatch(name):
            raise ValueError(f"an analyst's name has up to 48 letters, digits, '.', '_' and '-': got {name!r}")
        if name.casefold() in {_AUTHORITY, *_SERVERS}:
            raise ValueError(f"{name!r} cannot be an analyst's name: other files have that name")
    if len({name.casefold() for name in names}) < len(names):
        raise ValueError(f"each analyst needs a name of its own: got {', '.join(names)}")


def _analyst(name: str) -> str:
    return f"{ANALYST} {name}"


def _distinct(hosts: Sequence[x509.GeneralName]) -> list[x509.GeneralName]:
    return list(dict.fromkeys(hosts))
