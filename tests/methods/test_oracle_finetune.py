import torch

from fedade.methods.oracle_finetune import OracleFinetune
from fedade.methods.source import Source

from ..helpers import mean, run
from .checks import RATE, assert_finite_on_one_sample, assert_maps_agree, first_batches, of_client


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
        client, _ = method.observe(deployment, method.init_client(deployment), (), renamed)
        predicted = method.predict(deployment, client, (), seen.inputs).argmax(-1)
    assert (predicted == renamed.labels).float().mean() > 0.8


def test_both_client_maps_agree(scenario_factory):
    assert_maps_agree(OracleFinetune(rate=RATE), scenario_factory(num_clients=4, num_timesteps=2))


def test_one_sample_is_enough(scenario_factory):
    assert_finite_on_one_sample(OracleFinetune(rate=RATE), scenario_factory)
