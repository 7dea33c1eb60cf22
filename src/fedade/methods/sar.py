"""SAR: entropy minimisation on reliable samples, towards flat minima, with recovery (Niu et al., ICLR 2023).

TENT with four guards: samples of high entropy are left out, the step follows the gradient at the worst nearby point
(SAM, Foret et al., 2021), the last stage of the network stays as it is, and a client whose loss has become suspiciously
small goes back to the deployed model. The released code keeps the collapsed average after such a return, and so returns
again and again; here the average starts afresh, as its `reset` means to. Batch statistics make it bad under label
shift, and the published rate hardly moves a small network.

A client keeps 8 bytes per scale and shift that moves (value and velocity). A timestep costs about 6 forward passes per
sample; nothing is sent.
"""

import math
from typing import NamedTuple

import torch
from pydantic import Field
from torch import Tensor
from torch.func import grad

from fedade.core.method import Card, ClientContext, Method, Plan
from fedade.core.tree import choose
from fedade.maths.losses import entropy_from_logits
from fedade.parts import norm_layers
from fedade.parts.optimisers import Learner, MomentumOptimiser, Optimiser

_IMAGENET_CLASSES = 1000


class SarClient(NamedTuple):
    """A client's own scales and shifts with their optimiser, and the running loss by which it notices a collapse."""

    learner: Learner
    running_loss: Tensor
    losses: Tensor
    """How many losses the running one holds."""


class Sar(Method[SarClient]):
    """Sharpness-aware and reliable entropy minimisation, with the constants of the paper's ResNet."""

    about = Card(
        summary="TENT on reliable samples, towards flat minima, with recovery; made for BatchNorm, moves any norm",
        paper="SAR, ICLR 2023",
    )

    learning_rate: float = Field(2.5e-4, ge=0)
    sgd_momentum: float = Field(0.9, ge=0, lt=1)
    """Momentum of `sgd`; AdamW has its own."""
    optimiser: Optimiser = Optimiser()
    reliable_entropy: float = Field(0.4, gt=0)
    """Entropy below which a sample is reliable, as a share of ln K."""
    sharpness_radius: float = Field(0.05, ge=0)
    """ρ of SAM; 0: a plain gradient."""
    loss_memory: float = Field(0.9, ge=0, lt=1)
    """Share of its past that the mean loss keeps."""
    reset_loss: float = Field(0.2, ge=0)
    """Running loss below which a client returns to the deployed model; of 1000 classes, scaled by ln K / ln 1000."""
    include_last_stage: bool = False
    """Also move the last stage, whose features SAR holds to be too sensitive."""

    def begin(self, ctx: ClientContext) -> SarClient:
        learner = norm_layers.norm_learner(ctx.deployment, "sar", self._with_momentum, self.include_last_stage)
        zero = torch.zeros_like(ctx.deployment.accuracy)
        return SarClient(learner, zero, zero)

    def observe(self, ctx: ClientContext, state: SarClient) -> tuple[SarClient, Plan]:
        """The two passes of SAM, each on the samples that are reliable in it, then the check for a collapse. Without a
        reliable sample everything stays."""
        limit = self.reliable_entropy * math.log(ctx.deployment.num_classes)

        def loss(own: dict[str, Tensor], among: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
            sizes = entropy_from_logits(norm_layers.batch_logits(ctx.deployment, own, ctx.inputs))
            reliable = (sizes < limit) & among
            mean = norm_layers.masked_mean(sizes, reliable)
            return mean, (mean, reliable)

        everyone = torch.ones(len(ctx.inputs), dtype=torch.bool, device=ctx.inputs.device)
        own = state.learner.own
        slopes, (_, first) = grad(loss, has_aux=True)(own, everyone)
        # w + ρ g / ‖g‖ (SAM, Eq. 2), the norm being that of all slopes together
        size = torch.sqrt(torch.stack([slope.square().sum() for slope in slopes.values()]).sum())
        scale = self.sharpness_radius / (size + 1e-12)
        worst_nearby = {name: value + scale * slopes[name] for name, value in own.items()}
        slopes, (mean, second) = grad(loss, has_aux=True)(worst_nearby, first)
        learner = norm_layers.moved(state.learner, slopes, self._with_momentum, self.learning_rate)
        averaged = self.loss_memory * state.running_loss + (1 - self.loss_memory) * mean
        running = torch.where(state.losses > 0, averaged, mean)
        moved = SarClient(*choose(second.any(), SarClient(learner, running, state.losses + 1), state))
        least = self.reset_loss * math.log(ctx.deployment.num_classes) / math.log(_IMAGENET_CLASSES)
        collapsed = (moved.losses > 0) & (moved.running_loss < least)
        deployed, zero = {name: ctx.deployment.parameters[name] for name in own}, torch.zeros_like(mean)
        afresh = SarClient(Learner(deployed, self._with_momentum.start(deployed)), zero, zero)
        after = choose(collapsed, afresh, moved)
        plan = norm_layers.plan_with_reliable(self.learning_rate, second, mean)
        return after, plan | {"reset": collapsed.to(mean.dtype)}

    def predict(self, ctx: ClientContext, state: SarClient) -> Tensor:
        return norm_layers.own_batch_logits(ctx, state.learner.own).softmax(-1)

    @property
    def _with_momentum(self) -> MomentumOptimiser:
        return MomentumOptimiser(**dict(self.optimiser), momentum=self.sgd_momentum)
