"""The path ω(0), ..., ω(T) of a schedule (`fedade.maths.schedules`). Axes: T timesteps."""

import torch
from jaxtyping import Float
from torch import Tensor

from fedade.core.choices import known_name
from fedade.maths.schedules import SCHEDULES, VARIANTS


def weights(name: str, horizon: int, uniforms: Float[Tensor, " T"], variant: str = "standard") -> Float[Tensor, " T+1"]:
    """ω(0), ..., ω(T) in [0, 1], float64 (eqn:label_shift); ω(0) = 0, the law before the stream begins. ``uniforms``
    holds one draw from [0, 1) per timestep t = 1..T; only random schedules read it."""
    schedule = SCHEDULES[known_name("schedule", name, SCHEDULES)]
    rule = schedule.rule(known_name("schedule variant", variant, VARIANTS))
    if horizon < 1 or uniforms.shape[-1] != horizon:
        raise ValueError(
            f"schedule horizon: {horizon} timesteps with {uniforms.shape[-1]} uniform draws; "
            "give at least one timestep and one draw per timestep"
        )
    steps = torch.arange(1, horizon + 1, dtype=torch.float64, device=uniforms.device)
    later = rule(steps, horizon, uniforms)
    return torch.cat([torch.zeros_like(later[:1]), later])
