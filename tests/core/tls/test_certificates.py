"""A folder of certificates: what is in it, who may read it, what is renewed, and what is refused."""

from __future__ import annotations

import datetime as dt
import json
import logging
import os
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from reticent.console import program
from reticent.storage.files import create as put
from reticent.tls import certificates
from reticent.tls._authority import common_name, host_name, hosts_of
from reticent.tls.certificates import Certificate, CertificateError, create, renew

NOW = dt.datetime(2027, 3, 1, 12, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)
HOSTS = ["keys.example.org", "10.0.0.1", "::1"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    create(tmp_path / "certs", hosts=HOSTS, analysts=["ada", "bob"], days=100, now=NOW)
    return tmp_path / "certs"


def read(folder: Path, name: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate((folder / f"{name}.crt").read_bytes())


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_all_is_there_and_secrets_are_their_owners_only(folder: Path) -> None:
    names = ["ada", "ads", "aggregation", "bob", "ca", "keys"]
    assert sorted(contents(folder)) == sorted(f"{name}.{end}" for name in names for end in ("crt", "key"))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.glob("*.key")} == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) & ~0o644 for path in folder.glob("*.crt")} == {0}


@pytest.mark.parametrize(
    ("name", "called"),
    [
        ("keys", "key server"),
        ("aggregation", "aggregation server"),
        ("ads", "ad service"),
        ("ada", "analyst ada"),
        ("bob", "analyst bob"),
    ],
)
def test_each_certificate_is_of_the_right_party(folder: Path, name: str, called: str) -> None:
    loaded = Certificate.load(folder, name, NOW)
    assert (loaded.name, loaded.expires) == (called, NOW + 100 * DAY)
    assert loaded.authority == (folder / "ca.crt").read_bytes()
    assert "PRIVATE" not in repr(loaded)
    serves = name in {"keys", "aggregation", "ads"}
    assert hosts_of(read(folder, name)) == ([host_name(host) for host in HOSTS] if serves else [])
    assert isinstance(read(folder, name).public_key(), ec.EllipticCurvePublicKey)


def test_another_verifier_agrees(folder: Path) -> None:
    """The one of cryptography, by the rules of the web."""
    store = Store([read(folder, "ca")])

    def verify(name: str, host: str, day: int) -> None:
        verifier = PolicyBuilder().store(store).time(NOW + day * DAY).build_server_verifier(x509.DNSName(host))
        verifier.verify(read(folder, name), [])

    for name in ("keys", "aggregation", "ads"):
        verify(name, "keys.example.org", 99)
        for host, day in (("other.example.org", 99), ("keys.example.org", 101), ("keys.example.org", -1)):
            with pytest.raises(VerificationError):
                verify(name, host, day)
    with pytest.raises(VerificationError):
        verify("ada", "ada", 99)


def test_the_authority_certifies_no_other_authority(folder: Path) -> None:
    authority = read(folder, "ca")
    constraints = authority.extensions.get_extension_for_class(x509.BasicConstraints)
    assert (constraints.critical, constraints.value.ca, constraints.value.path_length) == (True, True, 0)
    assert not read(folder, "keys").extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert authority.not_valid_after_utc - NOW == 3650 * DAY


def test_nothing_is_overwritten(folder: Path) -> None:
    before = contents(folder)
    with pytest.raises(ValueError, match=r"ada\.crt exists: name another folder"):
        create(folder, hosts=HOSTS, analysts=["eve"], days=1)
    assert contents(folder) == before
    for path in folder.glob("*.crt"):
        path.unlink()
    with pytest.raises(ValueError, match=r"ada\.key exists"):
        create(folder, hosts=HOSTS, analysts=["eve"], days=1)


def test_a_folder_that_cannot_be_filled_is_left_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "certs").mkdir()
    (tmp_path / "certs" / "notes").write_text("mine")
    written = list[Path]()

    def full(path: Path, content: bytes, mode: int) -> None:
        if len(written) == 5:
            raise OSError(28, "No space left on device", str(path))
        written.append(path)
        put(path, content, mode)

    monkeypatch.setattr(certificates, "put", full)
    with pytest.raises(OSError, match="No space left"):
        create(tmp_path / "certs", hosts=HOSTS, analysts=["ada"], days=1)
    assert list(contents(tmp_path / "certs")) == ["notes"]


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"hosts": []}, "need at least one host"),
        ({"hosts": ["a b"]}, "got 'a b'"),
        ({"hosts": ["keys.example.org:50"]}, "got 'keys.example.org:50'"),
        ({"hosts": ["10.0.0.300"]}, "got '10.0.0.300'"),
        ({"hosts": ["-a.org"]}, "got '-a.org'"),
        ({"hosts": ["*.example.org"]}, r"got '\*.example.org'"),
        ({"hosts": ["fe80::1%eth0"]}, "got 'fe80::1%eth0'"),
        ({"hosts": [""]}, "got ''"),
        ({"hosts": ["a." * 127 + "org"]}, "a host is"),
        ({"hosts": ["münchen.de"]}, "got 'münchen.de'"),
        ({"analysts": [""]}, "got ''"),
        ({"analysts": ["../ada"]}, "got '../ada'"),
        ({"analysts": [".ada"]}, "got '.ada'"),
        ({"analysts": ["a" * 49]}, "up to 48"),
        ({"analysts": ["Keys"]}, "'Keys' cannot be an analyst's name"),
        ({"analysts": ["ca"]}, "'ca' cannot be an analyst's name"),
        ({"analysts": ["ada", "Ada"]}, "each analyst needs a name of its own"),
        ({"days": 0}, "valid for 1 to 3649 days: got 0"),
        ({"days": -3}, "got -3"),
        ({"days": 3650}, "got 3650"),
        ({"days": 10**12}, "got 1000000000000"),
    ],
)
def test_what_makes_no_certificates_leaves_no_folder(tmp_path: Path, wrong: dict[str, object], sentence: str) -> None:
    arguments = {"hosts": HOSTS, "analysts": ["ada"], "days": 10, **wrong}
    with pytest.raises(ValueError, match=sentence):
        create(tmp_path / "certs", now=NOW, **arguments)  # type: ignore[arg-type]
    assert not (tmp_path / "certs").exists()


def test_nothing_outlasts_the_authority(folder: Path, tmp_path: Path) -> None:
    create(tmp_path / "new", hosts=HOSTS, analysts=[], days=3649, now=NOW)
    renew(folder, days=100, now=NOW + 3550 * DAY)
    before = contents(folder)
    with pytest.raises(CertificateError, match="the authority expires on 2037-02-26"):
        renew(folder, days=100, now=NOW + 3551 * DAY)
    with pytest.raises(CertificateError, match=r"ca\.crt expired at"):
        renew(folder, days=1, now=NOW + 3650 * DAY)
    assert contents(folder) == before


def test_what_is_renewed_keeps_its_key_and_its_hosts(folder: Path) -> None:
    before = contents(folder)
    later = NOW + 99 * DAY
    issued = renew(folder, days=50, now=later)
    assert [(each.path.name, each.name, each.expires) for each in issued] == [
        ("ada.crt", "analyst ada", later + 50 * DAY),
        ("ads.crt", "ad service", later + 50 * DAY),
        ("aggregation.crt", "aggregation server", later + 50 * DAY),
        ("bob.crt", "analyst bob", later + 50 * DAY),
        ("keys.crt", "key server", later + 50 * DAY),
    ]
    after = contents(folder)
    assert {name for name in before if before[name] != after[name]} == {each.path.name for each in issued}
    assert after.keys() == before.keys()
    for name in ("keys", "aggregation", "ada", "bob"):
        assert Certificate.load(folder, name, later + 49 * DAY).expires == later + 50 * DAY
    assert hosts_of(read(folder, "keys")) == [host_name(host) for host in HOSTS]
    assert hosts_of(read(folder, "ada")) == []


def test_an_expired_certificate_is_renewed(folder: Path) -> None:
    renew(folder, days=10, now=NOW + 200 * DAY)
    assert Certificate.load(folder, "keys", NOW + 205 * DAY).name == "key server"


def test_renewing_adds_hosts_and_analysts(folder: Path) -> None:
    before = contents(folder)
    renew(folder, hosts=["other.example.org", "10.0.0.1"], analysts=["eve"], days=5, now=NOW)
    wanted = [host_name(host) for host in [*HOSTS, "other.example.org"]]
    assert hosts_of(read(folder, "keys")) == hosts_of(read(folder, "aggregation")) == wanted
    assert Certificate.load(folder, "eve", NOW).name == "analyst eve"
    assert hosts_of(read(folder, "eve")) == hosts_of(read(folder, "ada")) == []
    assert stat.S_IMODE((folder / "eve.key").stat().st_mode) == 0o600
    assert {name: contents(folder)[name] for name in before if name.endswith(".key")} == {
        name: content for name, content in before.items() if name.endswith(".key")
    }


def test_renewing_needs_no_private_keys_but_the_authoritys(folder: Path) -> None:
    """Those are where they are used."""
    for name in ("keys", "aggregation", "ada", "bob"):
        (folder / f"{name}.key").unlink()
    old = read(folder, "keys").public_key()
    renew(folder, days=5, now=NOW)
    assert read(folder, "keys").public_key() == old


@pytest.mark.parametrize("name", ["ada", "ADA"])
def test_an_analyst_who_is_there_is_not_added(folder: Path, name: str) -> None:
    before = contents(folder)
    with pytest.raises(ValueError, match=f"{name} has a certificate in"):
        renew(folder, analysts=[name], days=5, now=NOW)
    assert contents(folder) == before


def test_a_private_key_without_a_certificate_is_not_overwritten(folder: Path) -> None:
    (folder / "eve.key").write_text("mine")
    with pytest.raises(FileExistsError, match=r"eve\.key"):
        renew(folder, analysts=["eve"], days=5, now=NOW)
    assert (folder / "eve.key").read_text() == "mine"
    assert not (folder / "eve.crt").exists()


def test_a_stranger_in_the_folder_is_not_certified(folder: Path, tmp_path: Path) -> None:
    """Whoever can put a certificate there would get a better one."""
    create(tmp_path / "other", hosts=["evil.example.org"], analysts=["eve"], days=5, now=NOW)
    for name in ("eve", "keys"):
        (folder / "eve.crt").write_bytes((tmp_path / "other" / f"{name}.crt").read_bytes())
        before = contents(folder)
        with pytest.raises(CertificateError, match=r"the authority of this folder did not issue .*eve\.crt"):
            renew(folder, days=5, now=NOW)
        assert contents(folder) == before


def test_what_does_not_belong_together_is_not_loaded(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    create(other, hosts=HOSTS, analysts=["ada"], days=5, now=NOW)
    (folder / "ada.key").write_bytes((folder / "bob.key").read_bytes())
    with pytest.raises(CertificateError, match=r"ada\.key does not match .*ada\.crt"):
        Certificate.load(folder, "ada", NOW)
    (folder / "ca.crt").write_bytes((other / "ca.crt").read_bytes())
    with pytest.raises(CertificateError, match=r"the authority of .*ca\.crt did not issue .*keys\.crt"):
        Certificate.load(folder, "keys", NOW)
    with pytest.raises(CertificateError, match=r"ca\.key does not match"):
        renew(folder, now=NOW)


def test_what_is_not_in_time_is_not_loaded(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(
        CertificateError, match=r"keys\.crt expired at 2027-06-09 12:00 UTC: run `reticent certs renew`"
    ):
        Certificate.load(folder, "keys", NOW + 100 * DAY)
    with pytest.raises(CertificateError, match="valid from 2027-03-01 11:00 UTC: is this machine's clock"):
        Certificate.load(folder, "keys", NOW - DAY)
    Certificate.load(folder, "keys", NOW + 80 * DAY)
    assert not caplog.records
    Certificate.load(folder, "keys", NOW + 95 * DAY)
    assert [each.levelno for each in caplog.records] == [logging.WARNING]
    assert "expires at 2027-06-09 12:00 UTC" in caplog.text


@pytest.mark.parametrize("end", ["crt", "key"])
@pytest.mark.parametrize(
    "content", [b"", b"nonsense", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_what_is_not_pem_is_refused_by_name(folder: Path, end: str, content: bytes) -> None:
    (folder / f"ada.{end}").write_bytes(content)
    with pytest.raises(CertificateError, match=rf"ada\.{end} is not a "):
        Certificate.load(folder, "ada", NOW)


def test_keys_of_other_kinds_are_refused(folder: Path) -> None:
    (folder / "ada.key").write_bytes(
        ed25519.Ed25519PrivateKey.generate().private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    with pytest.raises(CertificateError, match="is not an ECDSA key"):
        Certificate.load(folder, "ada", NOW)


def test_what_is_not_there_is_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"eve\.crt"):
        Certificate.load(folder, "eve", NOW)
    with pytest.raises(FileNotFoundError, match=r"ca\.crt"):
        renew(tmp_path / "nowhere")
    (folder / "ca.key").unlink()
    with pytest.raises(FileNotFoundError, match=r"ca\.key"):
        renew(folder, now=NOW)


def test_two_authorities_have_two_names(folder: Path, tmp_path: Path) -> None:
    create(tmp_path / "other", hosts=HOSTS, analysts=[], days=5, now=NOW)
    assert common_name(read(folder, "ca")) != common_name(read(tmp_path / "other", "ca"))


@pytest.fixture
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


class TestTheCommand:
    def test_begins_and_renews(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        folder = str(tmp_path / "certs")
        assert program.main(["certs", "init", folder, "--host", "a.org", "--host", "b.org", "--analyst", "ada"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line.rpartition(", until ")[0] for line in lines] == [
            f"{folder}/keys.crt: key server",
            f"{folder}/aggregation.crt: aggregation server",
            f"{folder}/ads.crt: ad service",
            f"{folder}/ada.crt: analyst ada",
        ]
        assert hosts_of(read(tmp_path / "certs", "keys")) == [host_name("a.org"), host_name("b.org")]
        assert program.main(["certs", "renew", folder, "--analyst", "bob", "--days", "30", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert [each["name"] for each in found] == [
            "analyst ada",
            "ad service",
            "aggregation server",
            "key server",
            "analyst bob",
        ]
        left = {dt.datetime.fromisoformat(each["expires"]) - dt.datetime.now(dt.UTC) for each in found}
        assert all(29 * DAY < each <= 30 * DAY for each in left)

    def test_is_for_this_machine_unless_told_otherwise(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert program.main(["certs", "init", str(tmp_path / "certs")]) == 0
        assert hosts_of(read(tmp_path / "certs", "keys")) == [host_name(h) for h in ("localhost", "127.0.0.1", "::1")]
        assert "analyst" not in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("arguments", "code", "sentence"),
        [
            (["init", "certs"], 2, "certs/ads.crt exists"),
            (["init", "new", "--host", "a b"], 2, "got 'a b'"),
            (["init", "nowhere/at/all"], 2, "nowhere/at/all: No such file or directory"),
            (["renew", "empty"], 2, "empty/ca.crt: No such file or directory"),
            (["renew", "certs", "--days", "99999"], 2, "valid for 1 to 3649 days: got 99999"),
        ],
    )
    def test_errs_in_one_sentence(
        self, in_a_folder: None, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, sentence: str
    ) -> None:
        create("certs", hosts=HOSTS, analysts=[], days=1)
        assert program.main(["certs", *arguments]) == code
        out, err = capsys.readouterr()
        assert out == ""
        assert sentence in err
        assert err.count("\n") == 1


def test_a_umask_does_not_open_secrets(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        create(tmp_path / "certs", hosts=HOSTS, analysts=["ada"], days=1)
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "certs").glob("*.key")} == {0o600}
    assert stat.S_IMODE((tmp_path / "certs").stat().st_mode) == 0o700
