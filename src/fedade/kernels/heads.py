"""Where the queries, keys and values of an attention lie, as data."""

from dataclasses import dataclass

import torch
from torch import Tensor

MOST_TOKENS, MOST_CHANNELS = 128, 64
"""Of a head, which a program holds as a whole; half as many tokens in float32."""


@dataclass(frozen=True)
class HeadPlaces:
    """Of `[heads, tokens, channels]` within every sample of a source: the first number, and from one to the next."""

    source: int
    size: int
    """Numbers of a sample."""
    first: int
    head: int
    token: int
    channel: int


@dataclass(frozen=True)
class Heads:
    """softmax(scale queries keys^T) values for each head. Together they are all of their sources, nothing twice."""

    queries: HeadPlaces
    keys: HeadPlaces
    values: HeadPlaces
    heads: int
    tokens: int
    channels: int
    scale: float

    def numbers_of(self, places: HeadPlaces, device: torch.device | None = None) -> Tensor:
        """Which numbers of a sample they are, `[heads, tokens, channels]`."""
        counts = (self.heads, places.head), (self.tokens, places.token), (self.channels, places.channel)
        heads, tokens, channels = (step * torch.arange(count, device=device) for count, step in counts)
        return places.first + heads[:, None, None] + tokens[:, None] + channels

    def covers(self) -> bool:
        """Whether they are all of their sources, none of them twice."""
        of_source: dict[tuple[int, int], list[Tensor]] = {}
        for places in self.places:
            of_source.setdefault((places.source, places.size), []).append(self.numbers_of(places).flatten())
        return all(
            torch.equal(torch.cat(numbers).sort().values, torch.arange(size))
            for (_, size), numbers in of_source.items()
        )

    def small(self, bytes_each: int) -> bool:
        """Whether a program can hold a head of such numbers."""
        return self.tokens <= MOST_TOKENS * 2 // bytes_each and self.channels <= MOST_CHANNELS

    @property
    def places(self) -> tuple[HeadPlaces, HeadPlaces, HeadPlaces]:
        return self.queries, self.keys, self.values
