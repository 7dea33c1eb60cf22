"""Random numbers from a key by hashing a counter: no hidden state, the same on every device and under `vmap`."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

_MASK = 0xFFFFFFFF


def uniform(key: Int[Tensor, ""], shape: tuple[int, ...], purpose: int = 0) -> Float[Tensor, "*S"]:
    """Independent uniform numbers in [0, 1); different purposes of one key are independent. Two rounds of MurmurHash3's
    32-bit finaliser (Appleby, public domain) over key, purpose and position."""
    return _numbers(key + 0x9E3779B9 * (purpose + 1), math.prod(shape)).reshape(shape)


def uniforms(key: Int[Tensor, ""], shape: tuple[int, ...], purposes: range) -> Float[Tensor, " P *S"]:
    """The same for several purposes at once."""
    every = torch.arange(purposes.start, purposes.stop, purposes.step, device=key.device)
    return _numbers((key + 0x9E3779B9 * (every + 1)).unsqueeze(-1), math.prod(shape)).reshape(len(purposes), *shape)


def normal(key: Int[Tensor, ""], shape: tuple[int, ...], purpose: int = 0) -> Float[Tensor, "*S"]:
    """Independent standard normal numbers (Box and Muller, 1958)."""
    radius = torch.sqrt(-2 * torch.log1p(-uniform(key, shape, 2 * purpose)))
    return radius * torch.cos(2 * math.pi * uniform(key, shape, 2 * purpose + 1))


def permutation(key: Int[Tensor, ""], size: int, purpose: int = 0) -> Int[Tensor, " n"]:
    """A random order of `size` things."""
    return torch.argsort(uniform(key, (size,), purpose))


def _numbers(seed: Tensor, size: int) -> Tensor:
    position = torch.arange(size, device=seed.device)
    mixed = _finalise(seed & _MASK)
    hashed = _finalise((position * 0x85EBCA77 + mixed) & _MASK)
    hashed = _finalise((hashed + mixed) & _MASK)
    return (hashed >> 8).to(torch.float32) / 2**24  # 24 bits: all that a float32 holds below 1


def _finalise(value: Tensor) -> Tensor:
    value = value ^ (value >> 16)
    value = (value * 0x85EBCA6B) & _MASK
    value = value ^ (value >> 13)
    value = (value * 0xC2B2AE35) & _MASK
    return value ^ (value >> 16)
