"""FedCCFA: classifiers are clustered class by class, features are drawn to the clusters' anchors (Chen et al., 2024).

Where concepts drift apart, clients may agree on one class and differ on another. So the server compares, for each
class, the classifier rows of the participants, and averages rows and class prototypes within each cluster only. The
original is supervised (`labels="oracle"`). In the label-free port a sample's label is the most probable class of the
deployed model's posterior, corrected by the batch's BBSE prior, where that is confident; the label histogram is the
prior. Absent classes are skipped. All rates become Fed-ADE's middle one; the published ones are `classifier_rate=0.1,
body_rate=0.01`. SGD is plain, without the published momentum of 0.9, as for every method here. The body of a text model
is all but its classifier. Under label shift concepts do not differ between clients: there the method averages its
classifiers like any other.
"""

from typing import NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from fedade.core.errors import FedadeError
from fedade.core.method import Card, ClientContext, Deployment, FederatedMethod, Plan, RoundContext, Shared
from fedade.core.split import Parameters, average
from fedade.maths import losses
from fedade.maths.counter import uniform
from fedade.maths.priors.reweighting import reweight
from fedade.methods.fed_ccfa.clusters import ClassKnowledge, alignment_loss, within_clusters
from fedade.parts.composition import effective, own_prediction, trainable
from fedade.parts.last_layers import class_rows, classified, last_layer, seen_by_last_layer
from fedade.parts.objectives import LabelSource
from fedade.parts.optimisers import WHOLE, Minibatch, Minibatches, Optimiser, OptimiserState, descend
from fedade.parts.participation import fixed_plan
from fedade.parts.priors import Estimator, deployed_probabilities, refuse_unsafe_inverse
from fedade.parts.rates import RateBounds
from fedade.parts.training import minibatches

_BALANCED_DRAW = 1000
"""Its numbers are apart from those of the epochs, which are numbered from 0."""


class FedCcfaClient(NamedTuple):
    """A classifier, the anchors of the classes that are known, and the states of two optimisers."""

    classifier: dict[str, Tensor]
    anchors: Tensor
    known: Tensor
    classifier_state: OptimiserState
    body_state: OptimiserState


class FedCcfaUplink(NamedTuple):
    """What a participant sends."""

    body: dict[str, Tensor]
    classifier: dict[str, Tensor]
    balanced: dict[str, Tensor]
    """A classifier trained on equally many samples per class: clients are compared by it."""
    prototypes: Tensor
    counts: Tensor
    """Labelled samples of each class."""


class Samples(NamedTuple):
    """A labelled batch."""

    inputs: Tensor
    labels: Tensor
    trust: Tensor


class FedCcfa(FederatedMethod[FedCcfaClient, FedCcfaUplink]):
    """Classifier clustering and feature alignment."""

    labels: LabelSource = "unsup"
    """Label-free as ported here, or the original with true labels."""
    rate: RateBounds = RateBounds()
    """Only `mid` is used, for whatever has no rate of its own below."""
    classifier_rate: float | None = Field(None, ge=0)
    """Rate of the head; None: the common one."""
    body_rate: float | None = Field(None, ge=0)
    """Rate of the body; None: the common one."""
    prior: Estimator = "simplex_ls"
    confidence: float = Field(0.7, ge=0, le=1)
    """Pseudo-labels below it are left out."""
    balanced_epochs: int = Field(5, ge=0)
    """Epochs of the head on balanced samples."""
    balanced_samples: int = Field(5, ge=1)
    """Most balanced samples per class; fewer where some class has fewer."""
    classifier_epochs: int = Field(1, ge=0)
    """Epochs of the head."""
    body_epochs: int = Field(5, ge=0)
    """Epochs of the body."""
    batch_size: int = Field(64, ge=1)
    optimiser: Optimiser = Optimiser()
    alignment_scale: float = Field(20.0, gt=0)
    """γ: the alignment loss counts H(label distribution) / γ."""
    temperature: float = Field(0.1, gt=0)
    """Divides the cosines between features and anchors."""
    radius: float = Field(0.1, ge=0)
    """Clients nearer than this (MADD) belong to one cluster."""

    @property
    def card(self) -> Card:
        summary = "shared body; classifier rows and class anchors averaged within clusters of clients"
        return Card(summary, "Chen et al., NeurIPS 2024", self.labels == "oracle", reads_deployed=True)

    def begin(self, ctx: ClientContext) -> FedCcfaClient:
        """No anchors yet; they come from the first exchange."""
        deployment = ctx.deployment
        refuse_unsafe_inverse(deployment, self.prior)
        classifier, rows = last_layer(deployment), class_rows(deployment)
        if rows is None or len(classifier) != 2:  # not a weight and a bias
            raise FedadeError(
                f"fed-ccfa: the head of {deployment.network.name!r} holds {', '.join(sorted(classifier))}; rows of "
                "classifiers are compared, so use a model whose last layer is linear, with a bias"
            )
        nothing, start = torch.zeros_like(rows), self.optimiser.start
        states = (start(classifier), start(self.begin_server(deployment)))
        return FedCcfaClient(classifier, nothing, nothing[:, 0] > 0, *states)

    def observe(self, ctx: ClientContext, state: FedCcfaClient) -> tuple[FedCcfaClient, Plan]:
        plan = fixed_plan(ctx, self.rate.mid, self.prior)
        if self.labels == "oracle":
            plan |= {"prior": ctx.prior.to(plan["prior"].dtype)}
        return state, plan | {"trusted": self._samples(ctx, plan["prior"]).trust.mean(-1)}

    def local_round(
        self, ctx: RoundContext, state: FedCcfaClient, plan: Plan
    ) -> tuple[FedCcfaClient, Plan, FedCcfaUplink]:
        """A balanced classifier to be compared by, then the own classifier, then the body under it."""
        deployment, samples = ctx.deployment, self._samples(ctx, plan["prior"])
        balanced, classifier, moments = self._classifiers(ctx, state, plan, samples)
        state = state._replace(classifier=classifier, classifier_state=moments)
        # Anchors count after the first timestep.
        active = state._replace(known=state.known & (ctx.timestep > 1))
        body, moments = self._aligned_body(ctx, active, plan, samples)
        features = _classifier_inputs(deployment, body, samples.inputs)
        prototypes = losses.class_means(features, samples.labels, samples.trust, deployment.num_classes)
        counts = losses.class_totals(samples.labels, samples.trust, deployment.num_classes)
        return state._replace(body_state=moments), plan, FedCcfaUplink(body, classifier, balanced, prototypes, counts)

    def personalise(self, ctx: RoundContext, state: FedCcfaClient, plan: Plan) -> tuple[FedCcfaClient, Plan]:
        """Take over the clusters' classifier rows and anchors; an older anchor stays where none came."""
        clusters: ClassKnowledge = ctx.downlink
        anchors = torch.where(clusters.known.unsqueeze(-1), clusters.anchors, state.anchors)
        known = state.known | clusters.known
        return state._replace(classifier=clusters.classifier, anchors=anchors, known=known), plan

    def predict(self, ctx: ClientContext, state: FedCcfaClient) -> Tensor:
        return own_prediction(ctx, state.classifier)

    def begin_server(self, deployment: Deployment) -> Shared:
        """The body, whatever the split: the classifier is what clients keep."""
        classifier = last_layer(deployment)
        return {name: value for name, value in trainable(deployment).items() if name not in classifier}

    def aggregate(
        self, deployment: Deployment, shared: Shared, uplinks: FedCcfaUplink, weights: Tensor
    ) -> tuple[Shared, ClassKnowledge]:
        """Bodies are averaged over all; classifier rows and prototypes within clusters, one class at a time."""
        return average(uplinks.body, weights), within_clusters(*uplinks[1:], radius=self.radius)

    def _samples(self, ctx: ClientContext, prior: Tensor) -> Samples:
        if self.labels == "oracle":
            return Samples(ctx.inputs, ctx.labels, torch.ones_like(ctx.labels, dtype=prior.dtype))
        posterior = reweight(deployed_probabilities(ctx), prior, ctx.deployment.source_prior)
        return Samples(ctx.inputs, *losses.confident_labels(posterior, self.confidence))

    def _classifiers(
        self, ctx: RoundContext, state: FedCcfaClient, plan: Plan, samples: Samples
    ) -> tuple[dict[str, Tensor], dict[str, Tensor], OptimiserState]:
        """The client's classifier after steps on a balanced choice of samples, which are taken anew in every round, and
        after steps on all; body frozen."""
        deployment, key = ctx.deployment, ctx.key
        features = _classifier_inputs(deployment, ctx.shared, samples.inputs)
        draws = uniform(key, samples.labels.shape, _BALANCED_DRAW)
        few = losses.balanced_sample(
            samples.labels, samples.trust, draws, deployment.num_classes, self.balanced_samples
        )

        def descended(
            weights: Tensor, steps: Minibatches, moments: OptimiserState
        ) -> tuple[dict[str, Tensor], OptimiserState]:
            def loss(moved: dict[str, Tensor], rows: Minibatch) -> Tensor:
                logits = classified(deployment, moved, features[rows])
                return losses.weighted_cross_entropy(logits, samples.labels[rows], weights[rows])

            return descend(loss, state.classifier, rate, steps, self.optimiser, moments)

        rate = _or_default(self.classifier_rate, plan["learning_rate"])
        balanced, _ = descended(few, [WHOLE] * self.balanced_epochs, self.optimiser.start(state.classifier))
        every = minibatches(key, len(features), range(self.classifier_epochs), self.batch_size)
        return balanced, *descended(samples.trust, every, state.classifier_state)

    def _aligned_body(
        self, ctx: RoundContext, state: FedCcfaClient, plan: Plan, samples: Samples
    ) -> tuple[dict[str, Tensor], OptimiserState]:
        """Steps on the body for cross-entropy + λ · alignment, λ = H(label distribution) / γ; classifier frozen."""
        strength = losses.entropy(plan["prior"]) / self.alignment_scale

        def loss(moved: dict[str, Tensor], rows: Minibatch) -> Tensor:
            inputs, labels, trust = (part[rows] for part in samples)
            features = _classifier_inputs(ctx.deployment, moved, inputs)
            fit = losses.weighted_cross_entropy(classified(ctx.deployment, state.classifier, features), labels, trust)
            aligned = alignment_loss(features, labels, trust, state.anchors, state.known, self.temperature)
            return fit + strength * aligned

        epochs = range(self.classifier_epochs, self.classifier_epochs + self.body_epochs)
        steps = minibatches(ctx.key, len(samples.labels), epochs, self.batch_size)
        rate = _or_default(self.body_rate, plan["learning_rate"])
        return descend(loss, ctx.shared, rate, steps, self.optimiser, state.body_state)


def _classifier_inputs(deployment: Deployment, body: Parameters, inputs: Tensor) -> Tensor:
    model = effective(deployment, body, {})
    return seen_by_last_layer(deployment, model, deployment.network.represent(model, inputs))


def _or_default(own: float | None, default: Tensor) -> Tensor:
    return default if own is None else torch.full_like(default, own)
