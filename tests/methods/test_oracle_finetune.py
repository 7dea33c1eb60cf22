import torch

from fedade.methods.oracle_finetune import OracleFinetune
from fedade.methods.source import Source

from ..helpers import begin, mean, observe, predict, run
from .checks import RATE, first_batches, of_client


def test_it_is_marked_as_an_oracle_and_fits_its_labels(scenario_factory):
    scenario = scenario_factory()
    method = OracleFinetune(rate=RATE, epochs=8)
    assert method.card.oracle
    fitted, source = run(method, scenario), run(Source(), scenario)
    assert mean(fitted, "accuracy_post") > mean(source, "accuracy_post") + 0.05


def test_it_learns_whatever_the_labels_say(scenario_factory):
    scenario = scenario_factory(num_clients=2)
    deployment, method = scenario.deployment, OracleFinetune(rate=RATE, epochs=30)
    seen = of_client(first_batches(scenario), 0)
    renamed = seen._replace(labels=(seen.labels + 1) % deployment.num_classes)
    with torch.no_grad():
        client, _ = observe(method, deployment, begin(method, deployment), (), renamed)
        predicted = predict(method, deployment, client, (), seen.inputs).argmax(-1)
    assert (predicted == renamed.labels).float().mean() > 0.8
