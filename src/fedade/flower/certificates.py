"""A certificate authority, a server certificate, node keys and a key that signs apps: who is who in a fleet."""

import ipaddress
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from fedade.core import storage
from fedade.core.errors import FedadeError
from fedade.core.importing import OptionalModule
from fedade.flower import CLIENT_NAME

x509: Any = OptionalModule("cryptography.x509", "flower")
hashes: Any = OptionalModule("cryptography.hazmat.primitives.hashes", "flower")
serialization: Any = OptionalModule("cryptography.hazmat.primitives.serialization", "flower")
ec: Any = OptionalModule("cryptography.hazmat.primitives.asymmetric.ec", "flower")
ed25519: Any = OptionalModule("cryptography.hazmat.primitives.asymmetric.ed25519", "flower")
oid: Any = OptionalModule("cryptography.x509.oid", "flower")
CA, CA_KEY = "ca.crt", "ca.key"
SERVER, SERVER_KEY = "server.pem", "server.key"
APP_KEY, TRUSTED = "app.key", "trusted.yaml"
"""What signs apps, and the file that tells nodes whose signature counts."""
NODES = "nodes"
LOOPBACK = ("localhost", "127.0.0.1")


def make_certificates(folder: Path, hosts: Sequence[str], nodes: Sequence[str], days: int) -> list[Path]:
    """Write what is missing, so that more nodes can be added later; returns the new files. Keys are the owner's alone.
    The authority's key signs certificates, and the app's key signs apps. Keep both off the hosts of the federation."""
    for node in nodes:
        if not CLIENT_NAME.fullmatch(node):
            raise FedadeError(f"--node {node!r} is no client name; expected letters, digits, '.', '_' and '-'")
    made: list[Path] = []
    if not (folder / CA).exists():
        made += _make_authority(folder, days)
    if not (folder / SERVER).exists():
        made += _make_server(folder, hosts, days)
    if not (folder / TRUSTED).exists():
        made += _make_app_key(folder)
    for node in nodes:
        files = NodeFiles.of(folder, node)
        if not files.key.exists():
            made.append(_write_key(files.key, ec.generate_private_key(ec.SECP384R1()), "OpenSSH"))
        public = _ssh_public(load_ssh_key(files.key))
        if not files.public_key.exists():
            storage.write_bytes(files.public_key, public)
            made.append(files.public_key)
    return made


def load_ssh_key(path: Path) -> Any:
    """The private key of a file; a file that holds none is an error, not another key."""
    try:
        return serialization.load_ssh_private_key(path.read_bytes(), password=None)
    except FileNotFoundError as error:
        raise FedadeError(f"{path} is missing; make it with `fedade flower certs`") from error
    except (OSError, ValueError) as error:
        raise FedadeError(f"{path} holds no private key; delete it and run `fedade flower certs` again") from error


def key_pair(path: Path) -> tuple[Any, Any]:
    key = load_ssh_key(path)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise FedadeError(f"{path} is no elliptic-curve key; make one with `fedade flower certs`")
    return key, key.public_key()


class NodeFiles(NamedTuple):
    """What belongs to one client's host and to no other."""

    key: Path
    """Private; the node proves with it who it is."""
    public_key: Path
    """To be registered with the SuperLink."""

    @classmethod
    def of(cls, folder: Path, node: str) -> "NodeFiles":
        place = folder / NODES / node
        return cls(place / "node.key", place / "node.key.pub")


def _make_authority(folder: Path, days: int) -> list[Path]:
    key = ec.generate_private_key(ec.SECP384R1())
    name = _name("fedade authority")
    usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
    certificate = (
        _certificate(name, name, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return [_write_key(folder / CA_KEY, key), _write_certificate(folder / CA, certificate)]


def _make_server(folder: Path, hosts: Sequence[str], days: int) -> list[Path]:
    """A certificate for some hosts and for loopback, signed by the authority."""
    if not (folder / CA_KEY).exists():
        raise FedadeError(f"{folder / CA_KEY} is missing; the authority's key is needed to sign another certificate")
    authority = x509.load_pem_x509_certificate((folder / CA).read_bytes())
    signer = serialization.load_pem_private_key((folder / CA_KEY).read_bytes(), password=None)
    key = ec.generate_private_key(ec.SECP384R1())
    names = dict.fromkeys((*hosts, *LOOPBACK))
    certificate = (
        _certificate(authority.subject, _name(next(iter(names))), key.public_key(), days)
        .add_extension(x509.SubjectAlternativeName([_alternative(host) for host in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([oid.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), critical=False)
        .sign(signer, hashes.SHA256())
    )
    return [_write_key(folder / SERVER_KEY, key), _write_certificate(folder / SERVER, certificate)]


def _make_app_key(folder: Path) -> list[Path]:
    """The key comes first: a kill between the two leaves a key whose public half is written with the next call."""
    made = []
    if not (folder / APP_KEY).exists():
        made.append(_write_key(folder / APP_KEY, ed25519.Ed25519PrivateKey.generate(), "OpenSSH"))
    public = _ssh_public(load_ssh_key(folder / APP_KEY)).decode().strip()
    storage.write_yaml(folder / TRUSTED, {f"fpk_{uuid.uuid5(uuid.NAMESPACE_OID, public)}": public})
    return [*made, folder / TRUSTED]


def _ssh_public(key: Any) -> bytes:
    encoding, form = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    encoded: bytes = key.public_key().public_bytes(encoding, form) + b"\n"
    return encoded


def _certificate(issuer: Any, subject: Any, public_key: Any, days: int) -> Any:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .issuer_name(issuer)
        .subject_name(subject)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))  # clocks of hosts differ
        .not_valid_after(now + timedelta(days=days))
    )


def _name(common: str) -> Any:
    return x509.Name([x509.NameAttribute(oid.NameOID.COMMON_NAME, common)])


def _alternative(host: str) -> Any:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write_certificate(path: Path, certificate: Any) -> Path:
    storage.write_bytes(path, certificate.public_bytes(serialization.Encoding.PEM))
    return path


def _write_key(path: Path, key: Any, form: str = "PKCS8") -> Path:
    encoding, kind = serialization.Encoding.PEM, getattr(serialization.PrivateFormat, form)
    storage.write_bytes(path, key.private_bytes(encoding, kind, serialization.NoEncryption()), private=True)
    return path
