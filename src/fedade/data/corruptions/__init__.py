"""Corruptions of colour images: those of CIFAR-10-C and CIFAR-100-C, generated from clean images."""

from fedade.data.corruptions.corrupting import corrupt
from fedade.data.corruptions.pool import ALGORITHM_VERSION, corrupted_pool, digest_of
from fedade.data.corruptions.registry import CORRUPTIONS, MAX_SEVERITY, PUBLISHED, STANDARD, Corruption

__all__ = [
    "ALGORITHM_VERSION",
    "CORRUPTIONS",
    "MAX_SEVERITY",
    "PUBLISHED",
    "STANDARD",
    "Corruption",
    "corrupt",
    "corrupted_pool",
    "digest_of",
]
