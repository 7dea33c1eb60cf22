"""LAME: answers of samples that look alike are drawn together; no weight moves (Boudiaf et al., CVPR 2022).

The deployed model's probabilities are corrected by a Laplacian term: Y ← softmax(log p + W Y), where W says how close
two samples of the batch are in feature space. The released code stops when an energy settles; here the number of
iterations is fixed, so that all clients take the same steps. Good where labels come in runs, bad where a batch holds
all classes alike. The pull grows with the size of a batch.

A client keeps nothing; a timestep costs one forward pass per sample, and nothing is sent.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import normalize

from fedade.core.method import Card, ClientContext, Method, Plan
from fedade.parts.last_layers import frozen_features

LEAST_PROBABILITY = 1e-10
LEAST_WIDTH = 1e-12
"""Width of the kernel below which all samples are the same one, and there is nothing to compare."""


class Lame(Method[tuple[()]]):
    """Laplacian adjusted maximum-likelihood estimation, with the constants of the released code."""

    about = Card(
        "answers of samples that are close in feature space are drawn together", "LAME, CVPR 2022", keeps_body=True
    )

    affinity: Literal["rbf", "knn", "linear"] = "rbf"
    """How it is measured whether two samples are alike."""
    neighbours: int = Field(5, ge=1)
    """`knn`: how many; `rbf`: the kernel is as wide as the mean distance to this one, the sample itself counted."""
    iterations: int = Field(100, ge=0)
    """Rounds of the answers drawing one another together."""

    def begin(self, ctx: ClientContext) -> tuple[()]:
        return ()

    def observe(self, ctx: ClientContext, state: tuple[()]) -> tuple[tuple[()], Plan]:
        return state, {}

    def predict(self, ctx: ClientContext, state: tuple[()]) -> Tensor:
        deployment = ctx.deployment
        probabilities = deployment.network.classify(deployment.parameters, ctx.deployed_features()).softmax(-1)
        return drawn_together(probabilities, self.affinities(normalize(frozen_features(ctx), dim=-1)), self.iterations)

    def affinities(self, features: Tensor) -> Tensor:
        """W, `[n, n]`, of features of length 1."""
        if self.affinity == "linear":
            return features @ features.T
        samples = len(features)
        distances = torch.linalg.vector_norm(features.unsqueeze(1) - features, dim=-1)
        if self.affinity == "knn":
            others = distances + torch.eye(samples, device=features.device) * 4  # farther than any two unit vectors
            order = others.argsort(-1)[:, : min(self.neighbours, samples - 1)]
            return torch.zeros_like(distances).scatter(-1, order, 1.0)
        width = distances.sort(-1).values[:, min(self.neighbours, samples) - 1].mean()
        kernel = torch.exp(-distances.square() / (2 * width.square().clamp_min(LEAST_WIDTH**2)))
        return torch.where(width < LEAST_WIDTH, 0.0, kernel)


def drawn_together(probabilities: Tensor, affinities: Tensor, iterations: int) -> Tensor:
    """Y ← softmax(log p + W Y), so many times from Y = p."""
    unary = torch.log(probabilities + LEAST_PROBABILITY)
    answers = unary.softmax(-1)
    for _ in range(iterations):
        answers = (unary + affinities @ answers).softmax(-1)
    return answers
