"""Constants of a deployment, and copies of its modules."""

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import torch

import fedade
from fedade.core.network import PassCounter


def test_a_constant_is_computed_once_and_belongs_to_its_deployment(scenario_factory):
    deployment, made = scenario_factory().deployment, []

    def measured(of):
        made.append(of)
        return of.confusion.sum()

    assert deployment.constant(measured) is deployment.constant(measured)
    assert deployment.counting(PassCounter()).constant(measured) is deployment.constant(measured)
    assert len(made) == 1
    other = replace(deployment, confusion=2 * deployment.confusion)
    assert other.constant(measured) == 2 * deployment.constant(measured)
    for afresh in (deployment.to("cpu"), deployment.computing_in("float32")):
        afresh.constant(measured)
    assert len(made) == 4


def test_constants_have_no_graph_and_are_counted_as_no_pass(scenario_factory):
    deployment, counter = scenario_factory().deployment, PassCounter()
    counted = replace(deployment).counting(counter)
    found = counted.constant(lambda of: of.network.represent(of.parameters, of.reference.inputs).requires_grad)
    assert not found
    assert counter.passes == 0


def test_threads_share_a_network_and_its_tensors_but_no_module(scenario_factory):
    deployment = scenario_factory().deployment
    network, inputs = deployment.network, deployment.reference.inputs
    models = [{name: (1 + row) * value for name, value in deployment.parameters.items()} for row in range(8)]
    with torch.no_grad():
        expected = [network.logits(model, inputs) for model in models]

    def logits(model):
        with torch.no_grad():
            return network.logits(model, inputs)

    with ThreadPoolExecutor(4) as threads:
        for _ in range(5):
            for found, right in zip(threads.map(logits, models), expected, strict=True):
                torch.testing.assert_close(found, right)
    originals = {id(value) for value in (*network.body.parameters(), *network.body.buffers())}
    for copied in network._bodies.idle:
        assert copied is not network.body
        assert {id(value) for value in (*copied.parameters(), *copied.buffers())} == originals


def test_there_is_one_context_variable():
    """Everything else is an argument."""
    found = [
        path.name
        for path in Path(fedade.__file__).parent.rglob("*.py")
        if re.search(r"= ContextVar\(|threading\.local", path.read_text())
    ]
    assert found == ["normalisation.py"]
