"""Deployments with other networks than the default one."""

from dataclasses import replace

import torch
from torch import nn

from fedade.core.deployment import Deployment
from fedade.core.network import Network


def with_body(deployment: Deployment, *layers: nn.Module, width: int = 4) -> Deployment:
    """The same deployment with an untrained network for 8x8 grey images."""
    with torch.random.fork_rng(devices=[]):
        torch.random.manual_seed(0)
        first, head = nn.Conv2d(1, width, 3, stride=2), nn.Linear(9 * width, deployment.num_classes)
    network = Network("toy", nn.Sequential(AsFloat(), first, *layers, nn.ReLU(), nn.Flatten()).eval(), head.eval())
    parameters = network.initial_parameters()
    feature = network.represent(parameters, deployment.reference.inputs).mean(0)
    return replace(deployment, network=network, parameters=parameters, initial_feature=feature.detach())


class AsFloat(nn.Module):
    """Pixels on the scale of 0 to 1."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs.float() / 255
