"""Who may take part: nodes by public keys in a folder, each of one client's name; apps by an operator's signature, in
Flower's own form."""

import base64
import hashlib
import json
import time
from collections.abc import Mapping
from pathlib import Path

import httpx
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from flwr.cli.build import build_fab_from_disk
from flwr.proto.control_pb2 import ListNodesRequest, RegisterNodeRequest, UnregisterNodeRequest
from flwr.proto.fab_pb2 import GetFabResponse
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.primitives.asymmetric_ed25519 import create_message_to_sign, verify_signature

from fedade.core import storage
from fedade.core.errors import FedadeError, first_line
from fedade.flower import CLIENT_NAME
from fedade.flower.certificates import APP_KEY, CA, NODES, TRUSTED, load_ssh_key
from fedade.flower.settings import read_task

NODES_VARIABLE = "FEDADE_NODES"
"""Environment variable that tells a server the file of nodes and names. Its operator sets it, not who submits a run."""


def public_keys(certificates: Path) -> dict[str, bytes]:
    """The key of every name in a folder of certificates."""
    keys: dict[str, bytes] = {}
    for path in sorted((certificates / NODES).glob("*/node.key.pub")):
        name = path.parent.name
        try:
            key = public_key_to_bytes(load_ssh_public_key(path.read_bytes()))  # type: ignore[arg-type]
        except (OSError, ValueError, AttributeError) as error:
            raise FedadeError(f"{path} is no public key ({first_line(error)}); copy it again") from error
        if not CLIENT_NAME.fullmatch(name):
            raise FedadeError(f"{path.parent} is no client name; expected letters, digits, '.', '_' and '-'")
        if key in keys.values():
            raise FedadeError(f"{path} is another client's key too; make one for each with `fedade flower certs`")
        keys[name] = key
    return keys


def register_keys(address: str, certificates: Path, names_file: Path) -> dict[int, str]:
    """Let a SuperLink know these keys and no others, and write down which node has which name."""
    wanted = public_keys(certificates)
    try:
        authority, version = (certificates / CA).read_bytes(), RuntimeVersionHttpInterceptor(component_name="flwr CLI")
        with ControlHttpClient.from_server_address(address, False, authority, [version]) as control:
            nodes = control.ListNodes(ListNodesRequest()).nodes_info
            known = {node.public_key: node.node_id for node in nodes if node.status != "unregistered"}
            for key in known.keys() - set(wanted.values()):
                control.UnregisterNode(UnregisterNodeRequest(node_id=known[key]))
            for name, key in wanted.items():
                if key not in known:
                    known[key] = control.RegisterNode(RegisterNodeRequest(public_key=key, name=name)).node_id
    except httpx.HTTPError as error:
        raise FedadeError(f"the SuperLink at {address} does not register keys: {first_line(error)}") from error
    names = {known[key]: name for name, key in wanted.items()}
    storage.write_json(names_file, {str(node): name for node, name in names.items()})
    return names


def names_of_nodes(path: Path | None) -> Mapping[int, str] | None:
    """Which node has which name; None where nobody has bound them."""
    return None if path is None else {int(node): str(name) for node, name in storage.read_json(path).items()}


APPS = "apps"
"""In the folder of certificates: a signature for every app, by the digest of its bundle."""


def sign_app(app: Path, certificates: Path) -> Path:
    """Sign an app as it is now; the file goes to the SuperLink, which shows it to nodes with the app."""
    read_task(app)
    digest = hashlib.sha256(build_fab_from_disk(app)).digest()
    now, key = int(time.time()), load_ssh_key(certificates / APP_KEY)
    signature = base64.urlsafe_b64encode(key.sign(create_message_to_sign(digest, now))).decode()
    (identity,) = storage.read_yaml(certificates / TRUSTED)
    path = certificates / APPS / f"{digest.hex()}.json"
    storage.write_json(path, {"key": identity, "signed_at": now, "signature": signature})
    return path


def is_signed(content: bytes, verifications: Mapping[str, str], trusted: Path) -> bool:
    """Whether a key that a node trusts has signed an app's bundle."""
    keys, digest = storage.read_yaml(trusted), hashlib.sha256(content).digest()
    for identity, said in verifications.items():
        key = load_ssh_public_key(keys[identity].encode()) if identity in keys else None
        if isinstance(key, Ed25519PublicKey):
            signed = json.loads(said)
            message = create_message_to_sign(digest, signed["signed_at"])
            if verify_signature(key, message, base64.urlsafe_b64decode(signed["signature"])):
                return True
    return False


def with_signature(response: bytes, certificates: Path) -> bytes:
    """Flower's answer with an app, and the app's signature where there is one: nodes judge it themselves."""
    answer = GetFabResponse.FromString(response)
    path = certificates / APPS / f"{hashlib.sha256(answer.fab.content).hexdigest()}.json"
    if not path.exists():
        return response
    signed = storage.read_json(path)
    said = {"signed_at": signed["signed_at"], "signature": signed["signature"]}
    answer.fab.verifications.clear()
    # Flower's word for a SuperLink that can tell of signatures at all.
    answer.fab.verifications.update({signed["key"]: json.dumps(said), "valid_license": "Valid"})
    signed_answer: bytes = answer.SerializeToString()
    return signed_answer
