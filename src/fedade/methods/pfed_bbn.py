"""pFedBBN: class-balanced statistics, and an average with clients whose statistics are alike (2025).

Clients normalise with statistics that are balanced over predicted classes, and their scales and shifts learn a slow
teacher's certain answers on a random view, held near the deployed model's logits. In a round they send scales, shifts
and balanced statistics; each participant gets an average of scales and shifts of its own, in which clients with similar
statistics count more. Statistics by class are never sent. The method's own code is not public: the normalisation is
TRIBE's, with its constants, and the local loss and the teacher's pace are our reading.

A client keeps 8 bytes per class and normalised channel and 16 per scale and shift; it sends 16 bytes per normalised
channel and gets 8. A timestep costs about 6 forward passes per sample.
"""

from typing import NamedTuple

import torch
from pydantic import Field
from torch import Tensor
from torch.func import grad
from torch.nn.functional import cross_entropy

from fedade.core.method import Card, ClientContext, Deployment, FederatedMethod, Plan, RoundContext, Shared
from fedade.core.normalisation import Statistics
from fedade.core.tree import tree_map
from fedade.maths.losses import entropy_from_logits
from fedade.parts.augmentation import random_view, refuse_without_views
from fedade.parts.norm_layers import masked_mean, moved, norm_learner, plan_with_reliable
from fedade.parts.optimisers import Learner
from fedade.parts.running_norms import BalancedLearning, ClassBalanced, ClassRows, deployed_rows, mixture, mixtures
from fedade.parts.similar_clients import distances, median_distance, mixed, similarity_weights

SMALLEST = 1e-12


class PfedBbnClient(NamedTuple):
    """Scales and shifts with their optimiser, those of the teacher, and statistics by class."""

    learner: Learner
    teacher: dict[str, Tensor]
    rows: dict[str, ClassRows]


class PfedBbnUplink(NamedTuple):
    """What a participant sends."""

    own: dict[str, Tensor]
    statistics: dict[str, Statistics]


class PfedBbn(BalancedLearning, FederatedMethod[PfedBbnClient, PfedBbnUplink]):
    """Personalised federated adaptation with balanced batch normalisation."""

    about = Card("class-balanced statistics; scales averaged with clients whose statistics are alike", "pFedBBN, 2025")

    teacher_momentum: float = Field(0.999, ge=0, le=1)
    """Share of itself that the teacher keeps at a step."""
    temperature: float | None = Field(None, gt=0)
    """τ of the weights exp(-distance / τ) between clients; None: the median distance."""

    def begin(self, ctx: ClientContext) -> PfedBbnClient:
        refuse_without_views(ctx.deployment, "pfed-bbn")
        learner = norm_learner(ctx.deployment, "pfed-bbn", self.optimiser)
        return PfedBbnClient(learner, learner.own, deployed_rows(ctx.deployment))

    def observe(self, ctx: ClientContext, state: PfedBbnClient) -> tuple[PfedBbnClient, Plan]:
        """Statistics follow the predicted classes; scales learn from the teacher where it is certain."""
        deployment, classes = ctx.deployment, ctx.deployment.num_classes
        network, deployed = deployment.network, deployment.parameters
        labels = self.predict(ctx, state).argmax(-1)
        following = ClassBalanced(state.rows, self.pace(classes), labels)
        taught = network.logits({**deployed, **state.teacher}, ctx.inputs, following)
        rows = tree_map(torch.detach, following.found)
        settled = {**deployed, **mixtures(rows)}
        certain = entropy_from_logits(taught) < self.certain_below(classes)
        anchored = network.logits(deployed, ctx.inputs)
        view = random_view(ctx.inputs, ctx.key)

        def loss(own: dict[str, Tensor]) -> Tensor:
            lesson = cross_entropy(network.logits({**settled, **own}, view), taught.argmax(-1), reduction="none")
            away = (network.logits({**settled, **own}, ctx.inputs) - anchored).square().mean(-1)
            return masked_mean(lesson + self.anchoring * away, certain)

        slopes = grad(loss)(state.learner.own)
        learner = moved(state.learner, slopes, self.optimiser, self.learning_rate, certain.any())
        teacher = {
            name: torch.lerp(learner.own[name], value, self.teacher_momentum) for name, value in state.teacher.items()
        }
        plan = plan_with_reliable(self.learning_rate, certain, deployment.accuracy)
        return PfedBbnClient(learner, teacher, rows), plan

    def local_round(
        self, ctx: RoundContext, state: PfedBbnClient, plan: Plan
    ) -> tuple[PfedBbnClient, Plan, PfedBbnUplink]:
        statistics = {layer: mixture(rows) for layer, rows in state.rows.items()}
        return state, plan, PfedBbnUplink(state.learner.own, statistics)

    def personalise(self, ctx: RoundContext, state: PfedBbnClient, plan: Plan) -> tuple[PfedBbnClient, Plan]:
        return state._replace(learner=state.learner._replace(own=ctx.downlink)), plan

    def predict(self, ctx: ClientContext, state: PfedBbnClient) -> Tensor:
        model = {**ctx.deployment.parameters, **state.learner.own, **mixtures(state.rows)}
        return ctx.deployment.network.logits(model, ctx.inputs).softmax(-1)

    def aggregate(
        self, deployment: Deployment, shared: Shared, uplinks: PfedBbnUplink, weights: Tensor
    ) -> tuple[Shared, dict[str, Tensor]]:
        """Every participant's own average of scales and shifts; alone and without statistics all count alike."""
        apart = torch.stack([
            torch.zeros_like(distances(weights.unsqueeze(-1))),
            *(distances(value) / 2 for statistics in uplinks.statistics.values() for value in statistics),
        ]).sum(0) / max(1, len(uplinks.statistics))  # fmt: skip
        temperature = median_distance(apart).clamp_min(SMALLEST) if self.temperature is None else self.temperature
        own: dict[str, Tensor] = mixed(similarity_weights(apart, temperature), uplinks.own)
        return {}, own
