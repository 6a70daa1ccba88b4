"""A small certificate authority."""

from __future__ import annotations

import contextlib
import datetime as dt
import ipaddress
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from reticent.errors import ExitCode, ReticentError
from reticent.protocol.channels import ROLES, role_host

__all__ = ["Authority", "CertificateError", "common_name", "host_name", "hosts_of", "new_key", "pem"]

YEARS = 10
"""Validity of an authority."""

_SKEW = dt.timedelta(hours=1)
"""Tolerance for the clocks of other machines."""

_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_DNS_NAME = re.compile(rf"(?=.{{1,253}}$)(?:{_LABEL}\.)*(?![0-9]+$){_LABEL}", re.IGNORECASE)


class CertificateError(ReticentError):
    """A certificate is missing or expired, or does not match the files beside it."""

    exit_code = ExitCode.BAD_INPUT


@dataclass(frozen=True)
class Authority:
    """Certifies keys.

    Args:
        key: The private key. Its holder can impersonate every party.
        certificate: The authority's certificate, which every party has.
    """

    key: ec.EllipticCurvePrivateKey = field(repr=False)
    certificate: x509.Certificate

    @classmethod
    def new(cls, now: dt.datetime) -> Self:
        """A new authority, with a random name: errors can then tell two authorities apart."""
        key = new_key()
        name = _named(f"Reticent authority {secrets.token_hex(4)}")
        usage = _usage(signs_certificates=True)
        certificate = (
            _builder(name, name, key.public_key(), now, 365 * YEARS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .sign(key, hashes.SHA256())
        )
        return cls(key, certificate)

    def certify(
        self, key: ec.EllipticCurvePublicKey, name: str, hosts: Sequence[x509.GeneralName], days: int, now: dt.datetime
    ) -> x509.Certificate:
        """A certificate that binds a key to a name, and to hosts if it is a server's; without hosts it is for clients.

        Raises:
            CertificateError: The authority itself expires earlier.
        """
        if not 1 <= days < 365 * YEARS:
            raise ValueError(f"a certificate is valid for 1 to {365 * YEARS - 1} days: got {days}")
        end = self.certificate.not_valid_after_utc
        if days > (end - now).days:
            raise CertificateError(f"the authority expires on {end:%Y-%m-%d}: no certificate can last longer")
        purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if hosts:
            purposes.insert(0, ExtendedKeyUsageOID.SERVER_AUTH)
        builder = (
            _builder(_named(name), self.certificate.subject, key, now, days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
        )
        if hosts:
            names = [x509.DNSName(role_host(name)), *hosts]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self.key, hashes.SHA256())


def new_key() -> ec.EllipticCurvePrivateKey:
    """A new private key: ECDSA over P-256."""
    return ec.generate_private_key(ec.SECP256R1())


def host_name(host: str) -> x509.GeneralName:
    """A host in the form of certificates.

    >>> host_name("127.0.0.1"), host_name("Keys.Example.org")
    (<IPAddress(value=127.0.0.1)>, <DNSName(value='keys.example.org')>)
    """
    with contextlib.suppress(ValueError):
        found = ipaddress.ip_address(host)
        if "%" not in host:  # a zone means something on one machine only
            return x509.IPAddress(found)
    if not _DNS_NAME.fullmatch(host) or host.lower().endswith(ROLES):
        raise ValueError(f"a host is a name such as keys.example.org or an address such as 10.0.0.1: got {host!r}")
    return x509.DNSName(host.lower())


def hosts_of(certificate: x509.Certificate) -> list[x509.GeneralName]:
    """The hosts of a server's certificate."""
    try:
        names = list(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        return []
    return [name for name in names if not str(name.value).endswith(ROLES)]


def common_name(certificate: x509.Certificate) -> str:
    """The common name of a certificate."""
    [found] = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found.value)


def is_issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Whether the authority signed the certificate."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def pem(what: x509.Certificate | ec.EllipticCurvePrivateKey) -> bytes:
    """In PEM."""
    if isinstance(what, x509.Certificate):
        return what.public_bytes(serialization.Encoding.PEM)
    return what.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: dt.datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + dt.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
