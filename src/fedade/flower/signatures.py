"""Apps that a fleet's operator has signed, in Flower's own form: nodes take part in runs of these and of no others."""

import base64
import hashlib
import json
import time
from collections.abc import Mapping
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from flwr.cli.build import build_fab_from_disk
from flwr.proto.fab_pb2 import GetFabResponse
from flwr.supercore.primitives.asymmetric_ed25519 import create_message_to_sign, verify_signature

from fedade.core import storage
from fedade.flower.certificates import APP_KEY, TRUSTED, load_ssh_key
from fedade.flower.settings import read_task

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
