"""FedCCFA: classifiers are clustered class by class, features are drawn to the clusters' anchors (Chen et al., 2024).

Where concepts drift apart, clients may agree on one class and differ on another. So the server compares, for each
class, the classifier rows of the participants, and averages rows and class prototypes within each cluster only.

The original is supervised (`labels="oracle"`). In the label-free port a sample's label is the most probable class of
the deployed model's posterior, corrected by the batch's BBSE prior, where that is confident; the label histogram is the
prior. Absent classes are skipped. All rates become Fed-ADE's middle one; the published ones are `classifier_rate=0.1,
body_rate=0.01`. SGD is plain, without the published momentum of 0.9, as for every method here. The body of a text
model is all but its classifier.

Mean `post` accuracy on the default runs (presets digits-label and digits-covariate, seed 0; source 74.7 and 58.8):
label shift 77.6, covariate shift 53.8, below the source; the original with labels reaches 89.3 and 75.0. Under label
shift concepts do not differ between clients, and indeed none of the 61 comparisons of a class in that run gave more
than one cluster: there the method averages its classifiers like any other.
"""

from typing import Any, NamedTuple

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from fedade.core.deployment import Deployment
from fedade.core.method import Card
from fedade.core.split import Parameters
from fedade.maths.anchors import alignment_loss, class_means
from fedade.maths.counter import uniform
from fedade.maths.entropy import entropy
from fedade.maths.pseudo_labels import balanced_sample, class_totals, confident_labels, weighted_cross_entropy
from fedade.maths.reweighting import reweight
from fedade.parts.class_clusters import ClassKnowledge, linear_classifier, within_clusters
from fedade.parts.composition import effective
from fedade.parts.last_layers import classified, last_layer, seen_by_last_layer
from fedade.parts.optimisers import Optimiser, OptimiserState
from fedade.parts.participation import fixed_plan, trainable
from fedade.parts.priors import Estimator, deployed_probabilities, refuse_unsafe_inverse
from fedade.parts.rates import RateBounds
from fedade.parts.supervision import LabelSource, descend
from fedade.parts.training import minibatches
from fedade.parts.vectors import average

_BALANCED_DRAW = 1000
"""Its numbers are apart from those of the epochs, which are numbered from 0."""
_ALL = slice(None)


class FedCcfaClient(NamedTuple):
    """A classifier, the anchors of the classes that are known, and the states of two optimisers."""

    classifier: dict[str, Tensor]
    anchors: Tensor
    known: Tensor
    classifier_state: OptimiserState
    body_state: OptimiserState


class Uplink(NamedTuple):
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


class FedCcfa(BaseModel):
    """Classifier clustering and feature alignment."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    labels: LabelSource = "unsup"
    rate: RateBounds = RateBounds()
    """Only `mid` is used, for whatever has no rate of its own below."""
    classifier_rate: float | None = Field(None, ge=0)
    body_rate: float | None = Field(None, ge=0)
    prior: Estimator = "simplex_ls"
    confidence: float = Field(0.7, ge=0, le=1)
    """Pseudo-labels below it are left out."""
    balanced_epochs: int = Field(5, ge=0)
    balanced_samples: int = Field(5, ge=1)
    """Per class, at most; fewer where some class has fewer."""
    classifier_epochs: int = Field(1, ge=0)
    body_epochs: int = Field(5, ge=0)
    batch_size: int = Field(64, ge=1)
    optimiser: Optimiser = Optimiser()
    alignment_scale: float = Field(20.0, gt=0)
    """γ: the alignment loss counts H(label distribution) / γ."""
    temperature: float = Field(0.1, gt=0)
    """Of the cosines between features and anchors."""
    radius: float = Field(0.1, ge=0)
    """Clients nearer than this (MADD) belong to one cluster."""

    @property
    def card(self) -> Card:
        return Card(
            summary="shared body; classifier rows and class anchors averaged within clusters of clients",
            paper="Chen et al., NeurIPS 2024",
            oracle=self.labels == "oracle",
        )

    @property
    def fixed_participants(self) -> bool:
        return False

    # Client

    def init_client(self, deployment: Deployment) -> FedCcfaClient:
        """No anchors yet; they come from the first exchange."""
        refuse_unsafe_inverse(deployment, self.prior)
        classifier = linear_classifier(deployment, "fed-ccfa")
        weight = next(value for name, value in classifier.items() if name.endswith("weight"))
        return FedCcfaClient(
            classifier,
            torch.zeros_like(weight),
            torch.zeros_like(weight[:, 0], dtype=torch.bool),
            self.optimiser.start(classifier),
            self.optimiser.start(self.init_server(deployment)),
        )

    def observe(
        self, deployment: Deployment, client: FedCcfaClient, shared: Parameters, observation: Any
    ) -> tuple[FedCcfaClient, dict[str, Tensor]]:
        plan = fixed_plan(deployment, observation.inputs, self.rate.mid, self.prior)
        if self.labels == "oracle":
            plan |= {"prior": observation.prior.to(plan["prior"].dtype)}
        return client, plan | {"trusted": self._samples(deployment, plan["prior"], observation).trust.mean(-1)}

    def local_round(
        self,
        deployment: Deployment,
        client: FedCcfaClient,
        plan: dict[str, Tensor],
        shared: Parameters,
        observation: Any,
        key: Tensor,
    ) -> tuple[FedCcfaClient, dict[str, Tensor], Uplink]:
        """A balanced classifier to be compared by, then the own classifier, then the body under it."""
        samples, num_classes = self._samples(deployment, plan["prior"], observation), deployment.num_classes
        balanced, classifier, state = self._classifiers(deployment, client, plan, shared, samples, key)
        client = client._replace(classifier=classifier, classifier_state=state)
        # Anchors count after the first timestep.
        active = client._replace(known=client.known & (observation.timestep > 1))
        body, state = self._aligned_body(deployment, active, plan, shared, samples, key)
        client = client._replace(body_state=state)
        features = seen_by_last_layer(deployment, effective(deployment, body, {}), samples.inputs)
        prototypes = class_means(features, samples.labels, samples.trust, num_classes)
        counts = class_totals(samples.labels, samples.trust, num_classes)
        return client, plan, Uplink(body, classifier, balanced, prototypes, counts)

    def personalise(
        self,
        deployment: Deployment,
        client: FedCcfaClient,
        plan: dict[str, Tensor],
        shared: Parameters,
        downlink: ClassKnowledge,
        observation: Any,
        key: Tensor,
    ) -> tuple[FedCcfaClient, dict[str, Tensor]]:
        """Take over the clusters' classifier rows and anchors; an older anchor stays where none came."""
        anchors = torch.where(downlink.known.unsqueeze(-1), downlink.anchors, client.anchors)
        known = client.known | downlink.known
        return client._replace(classifier=downlink.classifier, anchors=anchors, known=known), plan

    def predict(self, deployment: Deployment, client: FedCcfaClient, shared: Parameters, inputs: Tensor) -> Tensor:
        return deployment.network.logits(effective(deployment, shared, client.classifier), inputs).softmax(-1)

    # Server

    def init_server(self, deployment: Deployment) -> dict[str, Tensor]:
        """The body, whatever the split: the classifier is what clients keep."""
        classifier = last_layer(deployment)
        return {name: value for name, value in trainable(deployment).items() if name not in classifier}

    def aggregate(
        self, deployment: Deployment, server: Parameters, uplinks: Uplink, weights: Tensor
    ) -> tuple[dict[str, Tensor], ClassKnowledge]:
        """Bodies are averaged over all; classifier rows and prototypes within clusters, one class at a time."""
        found = within_clusters(uplinks.classifier, uplinks.balanced, uplinks.prototypes, uplinks.counts, self.radius)
        return average(uplinks.body, weights), found

    def _samples(self, deployment: Deployment, prior: Tensor, observation: Any) -> Samples:
        if self.labels == "oracle":
            labels = observation.labels
            return Samples(observation.inputs, labels, torch.ones_like(labels, dtype=prior.dtype))
        posterior = reweight(deployed_probabilities(deployment, observation.inputs), prior, deployment.source_prior)
        return Samples(observation.inputs, *confident_labels(posterior, self.confidence))

    def _classifiers(
        self,
        deployment: Deployment,
        client: FedCcfaClient,
        plan: dict[str, Tensor],
        shared: Parameters,
        samples: Samples,
        key: Tensor,
    ) -> tuple[dict[str, Tensor], dict[str, Tensor], OptimiserState]:
        """The client's classifier after steps on a balanced choice of samples, which are taken anew in every round, and
        after steps on all; body frozen."""
        features = seen_by_last_layer(deployment, effective(deployment, shared, {}), samples.inputs)
        draws = uniform(key, samples.labels.shape, _BALANCED_DRAW)
        few = balanced_sample(samples.labels, samples.trust, draws, deployment.num_classes, self.balanced_samples)

        def loss(moved: dict[str, Tensor], rows: Tensor | None, weights: Tensor) -> Tensor:
            chosen = _ALL if rows is None else rows
            logits = classified(deployment, moved, features[chosen])
            return weighted_cross_entropy(logits, samples.labels[chosen], weights[chosen])

        rate = _or_default(self.classifier_rate, plan["learning_rate"])
        every = minibatches(key, len(features), range(self.classifier_epochs), self.batch_size)
        balanced, _ = descend(
            lambda moved, _: loss(moved, None, few),
            client.classifier,
            rate,
            [None] * self.balanced_epochs,
            self.optimiser,
            self.optimiser.start(client.classifier),
        )
        classifier, state = descend(
            lambda moved, rows: loss(moved, rows, samples.trust),
            client.classifier,
            rate,
            every,
            self.optimiser,
            client.classifier_state,
        )
        return balanced, classifier, state

    def _aligned_body(
        self,
        deployment: Deployment,
        client: FedCcfaClient,
        plan: dict[str, Tensor],
        shared: Parameters,
        samples: Samples,
        key: Tensor,
    ) -> tuple[dict[str, Tensor], OptimiserState]:
        """Steps on the body for cross-entropy + λ · alignment, λ = H(label distribution) / γ; classifier frozen."""
        strength = entropy(plan["prior"]) / self.alignment_scale

        def loss(moved: dict[str, Tensor], rows: Tensor | None) -> Tensor:
            inputs, labels, trust = (part[_ALL if rows is None else rows] for part in samples)
            features = seen_by_last_layer(deployment, effective(deployment, moved, {}), inputs)
            fit = weighted_cross_entropy(classified(deployment, client.classifier, features), labels, trust)
            aligned = alignment_loss(features, labels, trust, client.anchors, client.known, self.temperature)
            return fit + strength * aligned

        epochs = range(self.classifier_epochs, self.classifier_epochs + self.body_epochs)
        steps = minibatches(key, len(samples.labels), epochs, self.batch_size)
        rate = _or_default(self.body_rate, plan["learning_rate"])
        return descend(loss, shared, rate, steps, self.optimiser, client.body_state)


def _or_default(own: float | None, default: Tensor) -> Tensor:
    return default if own is None else torch.full_like(default, own)
