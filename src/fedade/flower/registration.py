"""Who may join: the public keys in a folder, each the key of one client's name."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
from cryptography.hazmat.primitives import serialization
from flwr.proto.control_pb2 import ListNodesRequest, RegisterNodeRequest, UnregisterNodeRequest
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes

from fedade.core import storage
from fedade.core.errors import FedadeError, first_line
from fedade.flower.certificates import CA, NODES
from fedade.flower.names import CLIENT_NAME

NODES_VARIABLE = "FEDADE_NODES"
"""Environment variable that tells a server the file of nodes and names. Its operator sets it, not who submits a run."""


def public_keys(certificates: Path) -> dict[str, bytes]:
    """The key of every name in a folder of certificates."""
    keys: dict[str, bytes] = {}
    for path in sorted((certificates / NODES).glob("*/node.key.pub")):
        name = path.parent.name
        try:
            key = public_key_to_bytes(serialization.load_ssh_public_key(path.read_bytes()))  # type: ignore[arg-type]
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
        with _control(address, certificates) as control:
            known = {node.public_key: node.node_id for node in _nodes(control)}
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


def _nodes(control: ControlHttpClient) -> list[Any]:
    return [node for node in control.ListNodes(ListNodesRequest()).nodes_info if node.status != "unregistered"]


def _control(address: str, certificates: Path) -> ControlHttpClient:
    version = RuntimeVersionHttpInterceptor(component_name="flwr CLI")
    return ControlHttpClient.from_server_address(address, False, (certificates / CA).read_bytes(), [version])


def names_of_nodes(path: Path | None) -> Mapping[int, str] | None:
    """Which node has which name; None where nobody has bound them."""
    if path is None:
        return None
    return {int(node): str(name) for node, name in storage.read_json(path).items()}
