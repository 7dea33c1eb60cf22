"""Fast equals obvious: vectorised, loop and plain autograd give the same parameters for every client."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from fedade.client_map import Vectorised, loop
from fedade.core import tree
from fedade.core.deployment import Deployment
from fedade.core.normalisation import Mixed, PassContext, RecordingStatistics, making_pass
from fedade.core.tree import leaves
from fedade.methods.fed_ade import FedAde
from fedade.models.batch_norm import BatchNorm, convert_batch_norms
from tests.helpers import Seen, begin, local_round, observe, personalise

TOLERANCES = {torch.float64: {"atol": 1e-9, "rtol": 1e-9}, torch.float32: {"atol": 1e-5, "rtol": 1e-4}}
CLIENTS = 5
RATES = {"low": 1e-3, "high": 1e-2}


def in_precision(deployment: Deployment, dtype: torch.dtype) -> Deployment:
    from dataclasses import replace

    cast = lambda value: value.to(dtype) if value.is_floating_point() else value  # noqa: E731
    names = ("confusion", "source_prior", "mean_prediction", "initial_feature", "temperature")
    return replace(
        deployment,
        parameters={name: cast(value) for name, value in deployment.parameters.items()},
        # floats, so that the pixels' constants do not decide the precision
        reference=deployment.reference._replace(inputs=deployment.reference.inputs.to(dtype)),
        **{name: cast(getattr(deployment, name)) for name in names},
    )


@pytest.fixture(params=[torch.float64, torch.float32], ids=["float64", "float32"])
def setting(request, scenario_factory):
    scenario = scenario_factory(kind="both", schedule="squ", num_clients=CLIENTS)
    deployment = in_precision(scenario.deployment, request.param)
    batch = scenario.streams.draw(np.arange(CLIENTS), 3)
    looked = Seen(batch.inputs.to(request.param), torch.full((CLIENTS,), 3), torch.arange(CLIENTS))
    return deployment, looked, TOLERANCES[request.param]


def one_round(method: FedAde, deployment: Deployment, client_map, looked):
    """Everything that a round computes for every client, from unequal heads."""
    clients = tree.repeat(begin(method, deployment), CLIENTS)
    for name, value in clients.own.items():
        if name.startswith("head."):
            clients.own[name] = value * (
                1 + 0.1 * torch.arange(CLIENTS).to(value.dtype).view(-1, *[1] * (value.ndim - 1))
            )
    shared = method.begin_server(deployment)
    with torch.no_grad():
        clients, plans = client_map(lambda c, o: observe(method, deployment, c, shared, o), clients, looked)
        observed = (clients, plans)
        clients, plans, uplinks = client_map(
            lambda c, p, o, k: local_round(method, deployment, c, p, shared, o, k), clients, plans, looked, looked.key
        )
        server, told = method.aggregate(deployment, shared, uplinks, torch.ones(CLIENTS))
        after, _ = client_map(
            lambda c, p, o, k: personalise(method, deployment, c, p, server, told, o, k),
            clients,
            plans,
            looked,
            looked.key,
        )
    return observed, clients, uplinks, server, after


@pytest.mark.parametrize("objective", ["bbse", "entropy", "bbse+entropy", "infomax", "pseudo"])
@pytest.mark.parametrize("batch_size", [16, 1000])
def test_vectorised_equals_loop_on_every_parameter(setting, objective, batch_size):
    deployment, looked, tolerance = setting
    method = FedAde(rate=RATES, objective=objective, batch_size=batch_size)
    fast, slow = (one_round(method, deployment, client_map, looked) for client_map in (Vectorised(), loop))
    assert len(leaves(fast)) == len(leaves(slow)) >= 40
    for one, other in zip(leaves(fast), leaves(slow), strict=True):
        torch.testing.assert_close(one, other, **tolerance)


@pytest.mark.parametrize("normalisation", ["frozen", "batch", "mix", "ema"])
def test_every_normalisation_mode_is_the_same_in_both_maps(setting, normalisation):
    deployment, looked, tolerance = setting
    method = FedAde(rate=RATES, normalisation=normalisation)
    fast, slow = (one_round(method, deployment, client_map, looked) for client_map in (Vectorised(2), loop))
    for one, other in zip(leaves(fast), leaves(slow), strict=True):
        torch.testing.assert_close(one, other, **tolerance)


def test_a_round_equals_plain_autograd_on_every_parameter(setting):
    """The obvious way: a module per client, `backward`, and PyTorch's SGD."""
    deployment, looked, tolerance = setting
    method = FedAde(rate=RATES, batch_size=1000)
    (_, plans), clients, uplinks, server, after = one_round(method, deployment, Vectorised(), looked)
    start = tree.repeat(deployment.personal, CLIENTS)
    labels = deployment.reference.labels
    share = torch.bincount(labels, minlength=10).to(deployment.confusion.dtype) / len(labels)
    for client in range(CLIENTS):
        factor = 1 + 0.1 * client
        parameters = {name: (value[client] * factor).clone().requires_grad_() for name, value in start.items()} | {
            name: value.clone().requires_grad_() for name, value in method.begin_server(deployment).items()
        }
        frozen = {name: value for name, value in deployment.parameters.items() if name not in parameters}

        def risk(parameters=parameters, frozen=frozen, client=client):
            logits = deployment.network.logits({**frozen, **parameters}, deployment.reference.inputs)
            weights = (plans["prior"][client] / share)[labels]
            return (weights * F.cross_entropy(logits, labels, reduction="none")).mean()

        optimiser = torch.optim.SGD(list(parameters.values()), float(plans["learning_rate"][client]))
        for _ in range(2):
            optimiser.zero_grad()
            risk().backward()
            optimiser.step()
        for name, value in uplinks.items():
            torch.testing.assert_close(value[client], parameters[name].detach(), **tolerance)
        for name in clients.own:
            torch.testing.assert_close(clients.own[name][client], parameters[name].detach(), **tolerance)

        heads = [parameters[name] for name in start]
        with torch.no_grad():
            for name, value in server.items():
                parameters[name].copy_(value)
        optimiser = torch.optim.SGD(heads, float(plans["learning_rate"][client]))
        for _ in range(2):
            optimiser.zero_grad()
            risk().backward()
            optimiser.step()
        for name in after.own:
            torch.testing.assert_close(after.own[name][client], parameters[name].detach(), **tolerance)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_our_batch_norm_is_pytorchs_in_every_mode(dtype):
    generator = torch.Generator().manual_seed(0)
    theirs = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3)).to(dtype)
    with torch.no_grad():
        theirs[1].running_mean.copy_(torch.randn(3, generator=generator))
        theirs[1].running_var.copy_(torch.rand(3, generator=generator) + 0.5)
        theirs[1].weight.copy_(torch.randn(3, generator=generator))
    from copy import deepcopy

    ours = convert_batch_norms(deepcopy(theirs))
    assert isinstance(ours[1], BatchNorm)
    inputs = torch.randn(6, 2, 5, 5, generator=generator, dtype=dtype)
    ours.eval(), theirs.eval()
    torch.testing.assert_close(ours(inputs), theirs(inputs), **TOLERANCES[dtype])
    theirs.train()
    with making_pass(PassContext(Mixed(1.0))):
        torch.testing.assert_close(ours(inputs), theirs(inputs), **TOLERANCES[dtype])
    recording = RecordingStatistics()
    with making_pass(PassContext(recording)):
        ours(inputs)
    convolved = theirs[0](inputs)
    torch.testing.assert_close(recording.seen[""].mean, convolved.mean((0, 2, 3)), **TOLERANCES[dtype])


def test_whole_runs_agree(scenario_factory):
    from ..helpers import run

    scenario = scenario_factory(schedule="ber")
    method = FedAde(rate=RATES)
    for fast, slow in zip(
        run(method, scenario, rounds=2), run(method, scenario, rounds=2, vectorised=False), strict=True
    ):
        for name in fast:
            np.testing.assert_allclose(fast[name], slow[name], atol=0.051 if "accuracy" in name else 1e-5)


@pytest.mark.parametrize("chunk_size", [None, 1, 2, CLIENTS, CLIENTS + 1])
def test_results_of_a_single_chunk_are_not_copied(chunk_size, monkeypatch):
    copies, cat = [], torch.cat
    monkeypatch.setattr(torch, "cat", lambda *given, **options: copies.append(1) or cat(*given, **options))
    rows = torch.arange(CLIENTS)
    assert torch.equal(Vectorised(chunk_size)(lambda row: row + 1, rows), rows + 1)
    assert bool(copies) == (chunk_size in (1, 2))
