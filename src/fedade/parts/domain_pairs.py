"""Steps of one client on labelled source samples beside unlabelled target samples."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedade.core.context import ClientContext
from fedade.core.deployment import Deployment
from fedade.core.split import Parameters
from fedade.core.tree import Tree, tree_map
from fedade.maths.counter import permutation


class DomainPair(NamedTuple):
    """A labelled batch of the reference set and an unlabelled one of the stream."""

    source_inputs: Tensor
    source_labels: Tensor
    target_inputs: Tensor


class Embedded(NamedTuple):
    """Features, one vector each, and logits of both batches under one model."""

    source_features: Tensor
    source_logits: Tensor
    target_features: Tensor
    target_logits: Tensor


def domain_pairs(ctx: ClientContext, steps: int, batch_size: int) -> Iterator[DomainPair]:
    """A random pair for every step; a set that fits into a batch is taken whole."""
    reference, inputs = ctx.reference, ctx.inputs
    for step in range(steps):
        source = _rows(ctx.key, len(reference.labels), batch_size, 2 * step)
        target = _rows(ctx.key, len(inputs), batch_size, 2 * step + 1)
        yield DomainPair(reference.inputs[source], reference.labels[source], inputs[target])


def embed(deployment: Deployment, own: Parameters, pair: DomainPair) -> Embedded:
    """One pass over both batches, with the deployed normalisation statistics."""
    network, model = deployment.network, {**deployment.parameters, **own}
    features = network.represent(model, torch.cat([pair.source_inputs, pair.target_inputs]))
    logits = network.classify(model, features)
    features = network.summarise(features)
    size = len(pair.source_labels)
    return Embedded(features[:size], logits[:size], features[size:], logits[size:])


def source_loss(embedded: Embedded, pair: DomainPair) -> Tensor:
    """Cross-entropy on the labelled batch: what keeps the classes in place while features move."""
    return cross_entropy(embedded.source_logits, pair.source_labels)


def descended(values: Tree, gradients: Tree, rate: Tensor | float) -> Tree:
    """One step of plain gradient descent on a tree of tensors."""
    return tree_map(lambda value, slope: value - rate * slope, values, gradients)


def _rows(key: Tensor, size: int, batch_size: int, purpose: int) -> Tensor | slice:
    return slice(None) if size <= batch_size else permutation(key, size, purpose)[:batch_size]
