"""FedCTTA: clients adapt alone, then average with those whose models answer noise alike (Rajib et al., IJCNN 2025).

Each client takes a step on its own predicted classes, with its batch's statistics, which its running ones follow. In a
round it sends its model and its mean logits on random images, the same images for everybody; the server returns each
participant an average of its own, in which clients with similar answers count more. No data, and nothing computed from
data but weights, is compared. Three released trees disagree. This is the one that follows the abstract's idea; its loss
are predicted classes, where the abstract has entropy (`loss`).

A client keeps 12·|θ| bytes, and sends and receives |θ| with all statistics. A timestep costs about 3 forward passes per
sample, and `noise_images` in a round.
"""

from typing import Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor
from torch.func import grad
from torch.nn.functional import cross_entropy

from fedade.core.method import Card, ClientContext, Deployment, FederatedMethod, Plan, RoundContext, Shared
from fedade.core.normalisation import RecordingStatistics
from fedade.maths.counter import uniform
from fedade.maths.losses import entropy_from_logits
from fedade.parts.composition import own_model, own_prediction
from fedade.parts.norm_layers import adaptable, follow, moved
from fedade.parts.optimisers import AdamOptimiser, Learner
from fedade.parts.rates import constant_rate
from fedade.parts.running_norms import own_statistics
from fedade.parts.similar_clients import distances, mixed, similarity_weights


class FedCttaClient(NamedTuple):
    """A model of its own with its optimiser, its statistics, and its mean answer to noise."""

    learner: Learner
    statistics: dict[str, Tensor]
    signature: Tensor  # [K]
    rounds: Tensor


class FedCttaUplink(NamedTuple):
    """What a participant sends."""

    own: dict[str, Tensor]
    statistics: dict[str, Tensor]
    signature: Tensor


class FedCtta(FederatedMethod[FedCttaClient, FedCttaUplink]):
    """Federated continual test-time adaptation, with the constants of the released ablation."""

    about = Card("own steps, then an average with clients whose models answer noise alike", "FedCTTA, IJCNN 2025")

    learning_rate: float = Field(1e-5, ge=0)
    optimiser: AdamOptimiser = AdamOptimiser()
    loss: Literal["pseudo", "entropy"] = "pseudo"
    """The model's own predicted classes, or the entropy of its answers."""
    statistics_momentum: float = Field(0.1, ge=0, le=1)
    """Weight of a batch in the running statistics."""
    noise_images: int = Field(64, ge=1)
    """Images of noise whose answers tell which clients are alike."""
    signature_memory: float = Field(0.9, ge=0, le=1)
    """Share of its past that a client's answer to noise keeps."""
    temperature: float = Field(1.0, gt=0)
    """Temperature of the weights exp(-distance / temperature) between clients."""

    def begin(self, ctx: ClientContext) -> FedCttaClient:
        own = adaptable(ctx.deployment)
        signature = torch.zeros_like(ctx.deployment.source_prior)
        learner = Learner(own, self.optimiser.start(own))
        return FedCttaClient(learner, own_statistics(ctx.deployment), signature, signature[0])

    def observe(self, ctx: ClientContext, state: FedCttaClient) -> tuple[FedCttaClient, Plan]:
        """A step with the batch's statistics, towards which the running ones move."""
        deployment = ctx.deployment

        def loss(own: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
            recording = RecordingStatistics()
            logits = deployment.network.logits({**deployment.parameters, **own}, ctx.inputs, recording)
            found = follow(state.statistics, recording.seen, self.statistics_momentum)
            if self.loss == "entropy":
                return entropy_from_logits(logits).mean(), found
            return cross_entropy(logits, logits.detach().argmax(-1)), found

        slopes, statistics = grad(loss, has_aux=True)(state.learner.own)
        learner = moved(state.learner, slopes, self.optimiser, self.learning_rate)
        plan = {"learning_rate": constant_rate(self.learning_rate, state.rounds)}
        return state._replace(learner=learner, statistics={**state.statistics, **statistics}), plan

    def local_round(
        self, ctx: RoundContext, state: FedCttaClient, plan: Plan
    ) -> tuple[FedCttaClient, Plan, FedCttaUplink]:
        """Answer the round's noise, and send the model with a running mean of such answers."""
        model = own_model(ctx, {**state.learner.own, **state.statistics})
        answer = ctx.deployment.network.logits(model, self.noise(ctx.deployment, ctx.timestep)).mean(0)
        past = torch.where(state.rounds > 0, state.signature, answer)
        signature = torch.lerp(answer, past, self.signature_memory)
        state = state._replace(signature=signature, rounds=state.rounds + 1)
        return state, plan, FedCttaUplink(state.learner.own, state.statistics, signature)

    def personalise(self, ctx: RoundContext, state: FedCttaClient, plan: Plan) -> tuple[FedCttaClient, Plan]:
        own, statistics = ctx.downlink
        return state._replace(learner=state.learner._replace(own=own), statistics=statistics), plan

    def predict(self, ctx: ClientContext, state: FedCttaClient) -> Tensor:
        return own_prediction(ctx, {**state.learner.own, **state.statistics})

    def aggregate(
        self, deployment: Deployment, shared: Shared, uplinks: FedCttaUplink, weights: Tensor
    ) -> tuple[Shared, tuple[dict[str, Tensor], dict[str, Tensor]]]:
        """Every participant's own average, by how alike the answers to noise are."""
        similar = similarity_weights(distances(uplinks.signature), self.temperature)
        return {}, mixed(similar, (uplinks.own, uplinks.statistics))

    def noise(self, deployment: Deployment, key: Tensor) -> Tensor:
        """Inputs drawn evenly from the range that the reference set has; of texts, tokens."""
        like = deployment.reference.inputs
        low, high = deployment.constant(_input_range)
        drawn = low + uniform(key, (self.noise_images, *like.shape[1:])) * (high - low)
        return drawn.to(like.dtype) if like.ndim == 2 and not like.is_floating_point() else drawn


def _input_range(deployment: Deployment) -> tuple[Tensor, Tensor]:
    inputs = deployment.reference.inputs.float()
    return inputs.min(), inputs.max()
