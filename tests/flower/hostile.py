"""Clients that lie: what the server gets of one client, changed on its way."""

from collections.abc import Callable

import torch
from flwr.app import Array, ConfigRecord, Message, RecordDict
from safetensors.torch import load, save
from torch import Tensor

from fedade.flower.wire import TURN

from .in_process import InProcessGrid

Change = Callable[[RecordDict], None]
"""Changes the content of an answer in place."""


def node_of(grid: InProcessGrid, name: str) -> int:
    """The node of a client."""
    return next(node for node, said in grid.nodes.items() if said["client"] == name)


def turn_of(message: Message) -> int:
    """The turn that a message of the server asks for."""
    return int(message.content.config_records["config"]["turn"])


def corrupt(grid: InProcessGrid, name: str, change: Change) -> None:
    """Let every answer of a client be changed."""
    liar = node_of(grid, name)

    def tamper(node: int, reply: Message) -> Message:
        if node == liar and reply.metadata.message_type == TURN:
            change(reply.content)
        return reply

    grid.tamper = tamper


def uplink(content: RecordDict) -> dict[str, Tensor]:
    """The tensors of an answer; none where it holds no update."""
    blob = content.config_records["config"].get("arrays.uplink")
    return load(blob) if blob else {}


def replace_uplink(content: RecordDict, tensors: dict[str, Tensor]) -> None:
    """Put other tensors into an answer."""
    say(content, **{"arrays.uplink": save(tensors)})


def array(blob: bytes) -> Array:
    """Bytes as an array that claims to be safetensors."""
    return Array("uint8", (len(blob),), "safetensors", blob)


def say(content: RecordDict, **fields: str | bool | bytes | float | list[float]) -> None:
    """Change what an answer says."""
    content["config"] = ConfigRecord({**content.config_records["config"], **fields})


def like(tensors: dict[str, Tensor], value: float) -> dict[str, Tensor]:
    """Tensors of the same shapes that hold one value."""
    return {name: torch.full_like(tensor, value) for name, tensor in tensors.items()}
