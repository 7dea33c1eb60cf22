"""FedTHE+: a global and a personal head, mixed anew for every test sample (Jiang and Lin, ICLR 2023).

Both heads stand on one body. For each sample two weights are found without labels: where the heads agree they lower the
entropy of the mixed logits, where they do not they favour the head whose training features are nearer to a running mean
of the features. Then the whole model takes a few steps on the entropy of random views of that sample alone, answers,
and is put back. The personal head is fitted here to the client's own labelled data, in one pass over them at its first
batch, with the deployed head as the global one; where these data are as balanced as the deployed model's, both heads
nearly agree, and little is left to mix. Views are CoTTA's here, where the original has AugMix.

A client keeps a head and two mean features, and sends one. A prediction costs about 3·`steps`·`views` forward passes
per sample.
"""

from typing import NamedTuple

import torch
from pydantic import Field
from torch import Tensor
from torch.func import grad, vmap
from torch.nn.functional import cosine_similarity, cross_entropy

from fedade.core.method import Card, ClientContext, Deployment, FederatedMethod, Plan, RoundContext, Shared
from fedade.core.normalisation import Mixed
from fedade.core.tree import choose
from fedade.maths.losses import entropy, entropy_from_logits
from fedade.parts import last_layers
from fedade.parts.augmentation import refuse_without_views, views
from fedade.parts.norm_layers import adaptable
from fedade.parts.optimisers import SGD, WHOLE, AdamOptimiser, Minibatch, descend
from fedade.parts.rates import constant_rate
from fedade.parts.training import minibatches

BATCH = 32
FLAT = 1e-5
"""Slope below which a sample's mix is as good as it gets; Adam would take steps on rounding."""
_DEPLOYED = Mixed(0.0)
"""The deployed statistics, in plain arithmetic: models of single samples are mapped within mapped clients."""


class FedTheClient(NamedTuple):
    """The personal head, the mean feature that it was fitted on, and a running mean of the stream's features."""

    head: dict[str, Tensor]
    own_feature: Tensor
    history: Tensor
    started: Tensor


class FedThePlus(FederatedMethod[FedTheClient, Shared]):
    """Test-time head ensemble and test-time robust tuning, with the published constants."""

    about = Card(
        summary="global and personal head mixed for every sample, then steps on views of that sample alone",
        paper="FedTHE+, ICLR 2023",
        reads_deployed=True,
        reference=True,
    )

    learning_rate: float = Field(0.01, ge=0)
    """Learning rate of the personal head; ten times as much mixes the heads."""
    history_rate: float = Field(0.1, ge=0, le=1)
    """α: share of a sample in the running mean of the features."""
    sample_share: float = Field(0.1, ge=0, le=1)
    """β: share of a sample beside that mean, when heads are chosen."""
    mixing_steps: int = Field(20, ge=0)
    """Steps on the mix of the two heads."""
    steps: int = Field(3, ge=0)
    """Steps on the views of each sample; 0: FedTHE."""
    views: int = Field(16, ge=1)
    """Augmented views of each sample."""
    tuning_rate: float = Field(5e-4, ge=0)
    """Rate at which all weights are tuned."""

    @property
    def reads_reference_features(self) -> bool:
        return True

    def begin(self, ctx: ClientContext) -> FedTheClient:
        refuse_without_views(ctx.deployment, "fed-the-plus")
        feature = _mean_feature(ctx.deployment)
        return FedTheClient(last_layers.last_layer(ctx.deployment), feature, feature, torch.zeros_like(feature[0]))

    def begin_server(self, deployment: Deployment) -> Shared:
        return {"mean_feature": _mean_feature(deployment)}

    def observe(self, ctx: ClientContext, state: FedTheClient) -> tuple[FedTheClient, Plan]:
        """At the first batch the personal head is fitted; at all of them the history goes on."""
        features = last_layers.frozen_features(ctx)
        history = self._histories(features, state)[-1]
        state = FedTheClient(*choose(state.started > 0, state, self._fitted(ctx, state)))
        plan = {"learning_rate": constant_rate(self.learning_rate, history[0])}
        return state._replace(history=history, started=torch.ones_like(state.started)), plan

    def local_round(self, ctx: RoundContext, state: FedTheClient, plan: Plan) -> tuple[FedTheClient, Plan, Shared]:
        return state, plan, {"mean_feature": state.own_feature}

    def predict(self, ctx: ClientContext, state: FedTheClient) -> Tensor:
        deployment, features = ctx.deployment, last_layers.frozen_features(ctx)
        both = (last_layers.last_layer(deployment), state.head)
        heads = torch.stack([last_layers.classified(deployment, head, features) for head in both])
        nearby = torch.lerp(self._histories(features, state), features, self.sample_share)
        means = (ctx.shared["mean_feature"], state.own_feature)
        apart = torch.stack([torch.linalg.vector_norm(nearby - mean, dim=-1) for mean in means])
        shares = head_shares(heads, apart, self.mixing_steps, 10 * self.learning_rate)
        if not self.steps:
            return (shares.unsqueeze(-1) * heads).sum(0).softmax(-1)
        seen = torch.stack(list(views(ctx.inputs, ctx.key, self.views)), 1)
        return vmap(lambda sample, of_sample, share: self._tuned(deployment, state, sample, of_sample, share))(
            ctx.inputs, seen, shares.T
        )

    def _tuned(
        self, deployment: Deployment, state: FedTheClient, sample: Tensor, seen: Tensor, shares: Tensor
    ) -> Tensor:
        """Probabilities of one sample by a model that took steps on its views alone."""
        shared, head = adaptable(deployment), last_layers.last_layer(deployment)
        moving = {**shared, **{f"personal {name}": value for name, value in state.head.items()}}

        def logits(moved: dict[str, Tensor], inputs: Tensor) -> Tensor:
            model = {**deployment.parameters, **{name: moved[name] for name in shared}}
            represented = deployment.network.represent(model, inputs, _DEPLOYED)
            features = last_layers.seen_by_last_layer(deployment, model, represented)
            ours = last_layers.classified(deployment, {name: model[name] for name in head}, features)
            personal = last_layers.classified(deployment, {name: moved[f"personal {name}"] for name in head}, features)
            return shares[0] * ours + shares[1] * personal

        def loss(moved: dict[str, Tensor], _: Minibatch) -> Tensor:
            return entropy(logits(moved, seen).softmax(-1).mean(0))

        rate = torch.full_like(shares[0], self.tuning_rate)
        moved, _ = descend(loss, moving, rate, [WHOLE] * self.steps, SGD, ())
        return logits(moved, sample.unsqueeze(0))[0].softmax(-1)

    def _histories(self, features: Tensor, state: FedTheClient) -> Tensor:
        """h_i = α z_i + (1 - α) h_{i-1}, `[n, d]`; the first ever is the first feature."""
        before, found = torch.where(state.started > 0, state.history, features[0]), []
        for feature in features.unbind():
            before = torch.lerp(before, feature, self.history_rate)
            found.append(before)
        return torch.stack(found)

    def _fitted(self, ctx: ClientContext, state: FedTheClient) -> FedTheClient:
        """The deployed head after an epoch on the client's labelled data, and their mean feature."""
        deployment, labels = ctx.deployment, ctx.reference.labels
        features = last_layers.seen_by_last_layer(deployment, deployment.parameters, ctx.reference_features)

        def loss(head: dict[str, Tensor], rows: Minibatch) -> Tensor:
            return cross_entropy(last_layers.classified(deployment, head, features[rows]), labels[rows])

        rate = constant_rate(self.learning_rate, features[0, 0])
        head, _ = descend(loss, state.head, rate, minibatches(ctx.key, len(labels), range(1), BATCH), SGD, ())
        return state._replace(head=head, own_feature=features.mean(0))


def head_shares(heads: Tensor, apart: Tensor, steps: int, rate: float) -> Tensor:
    """Weights `[2, n]` of two heads' logits `[2, n, K]`, given how far each sample is from what they were fitted on."""
    optimiser = AdamOptimiser()
    agreement = cosine_similarity(heads[0].softmax(-1), heads[1].softmax(-1), dim=-1)

    def loss(raw: Tensor) -> Tensor:
        shares = raw.softmax(0)
        unsure = entropy_from_logits((shares.unsqueeze(-1) * heads).sum(0))
        return (agreement * unsure + (1 - agreement) * (shares * apart).sum(0)).sum()

    raw, state = torch.ones_like(apart), optimiser.start({"raw": apart})
    for _ in range(steps):
        slopes = grad(loss)(raw)
        slopes = torch.where(slopes.abs() < FLAT, 0.0, slopes)
        directions, state = optimiser.directions({"raw": raw}, {"raw": slopes}, state)
        raw = raw - rate * directions["raw"]
    return raw.softmax(0)


def _mean_feature(deployment: Deployment) -> Tensor:
    return last_layers.frozen_reference_features(deployment).mean(0)
