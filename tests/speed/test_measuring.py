"""What is timed is the same work: the plain loop and the simulator give the same numbers. No time is asserted."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from fedade.cli.main import app
from fedade.client_map import loop
from fedade.core.errors import FedadeError
from fedade.core.seeds import Seeds
from fedade.engine.clock import Clock
from fedade.engine.steps import Maps
from fedade.parts.rates import RateBounds
from fedade.speed.contenders import contenders, plain_costs, simulated_costs, unit_costs
from fedade.speed.flower_loop import simulated_by_flower
from fedade.speed.measuring import measure
from fedade.speed.plain_loop import PlainLoop, PlainModel
from fedade.speed.stacked_loop import StackedLoop
from fedade.speed.workload import WORKS, Work, random_scenario

SMALL = Work(clients=4, participants=4, rounds=1, timesteps=3, samples=6, input_shape=(3, 8, 8))
SEEDS = Seeds(0)


def test_the_plain_loop_gives_the_simulators_numbers():
    """With one round and everyone in it, the round's signals are those of the timestep."""
    work = replace(SMALL, rate=RateBounds(low=0.1, high=1.0))  # large, so that steps stand out from rounding
    scenario = random_scenario(work, "cpu")
    plain = PlainLoop(work, scenario, SEEDS)
    clock = Clock(work.method, scenario, work.exchange_rounds, SEEDS, Maps(loop, loop))
    world = clock.beginning()
    for timestep, rows in enumerate(clock.run(world), start=1):
        np.testing.assert_array_equal(plain.timestep(timestep), rows["accuracy_post"])
        np.testing.assert_allclose([client.rate for client in plain.clients], rows["learning_rate"], rtol=1e-3)
    for client, model in enumerate(one.model for one in plain.clients):
        state, deployed = model.state_dict(), scenario.deployment.parameters
        ours = {name: value[0] for name, value in world.server.items()}
        ours |= {name: value[0, client] for name, value in world.clients.own.items()}
        assert set(ours) == {name for name, _ in model.named_parameters()}
        for name, value in ours.items():
            moved, expected = state[name] - deployed[name], value - deployed[name]
            assert moved.abs().max() > 1e-4
            torch.testing.assert_close(moved, expected, rtol=1e-3, atol=1e-3 * float(moved.abs().max()))


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("participants", [4, 2])
def test_torch_func_does_the_work_of_the_plain_loop(rounds, participants):
    work = replace(SMALL, rounds=rounds, participants=participants, rate=RateBounds(low=0.1, high=1.0))
    scenario = random_scenario(work, "cpu")
    plain, stacked = PlainLoop(work, scenario, SEEDS), StackedLoop(work, scenario, SEEDS)
    for timestep in (1, 2):
        np.testing.assert_array_equal(plain.timestep(timestep), stacked.timestep(timestep))
    np.testing.assert_allclose([client.rate for client in plain.clients], stacked.rates, rtol=1e-3)
    for client, model in enumerate(one.model for one in plain.clients):
        for name, value in model.named_parameters():
            part, _, inner = name.partition(".")
            ours = stacked.shared[inner] if part == "body" else stacked.own[inner][client]
            torch.testing.assert_close(ours, value.detach(), rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # what a compiler warns of
def test_torch_func_can_be_compiled():
    scenario = random_scenario(SMALL, "cpu")
    (compiled,) = (one for one in contenders(SMALL, scenario, ("float32",), compiled=True) if "compiled" in one.name)
    whole = compiled.make(SMALL, scenario, SEEDS)
    np.testing.assert_array_equal(whole.timestep(1), PlainLoop(SMALL, scenario, SEEDS).timestep(1))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # what Flower and Ray warn of
def test_flowers_simulation_does_the_work_of_the_plain_loop():
    work = replace(SMALL, rounds=2, participants=2, timesteps=2, rate=RateBounds(low=0.1, high=1.0))
    run, plain = simulated_by_flower(work, "cpu", SEEDS), PlainLoop(work, random_scenario(work, "cpu"), SEEDS)
    assert run.accuracies == [plain.timestep(timestep).tolist() for timestep in (1, 2)]
    assert (len(run.rounds), len(run.scores)) == (4, 2)


def test_every_contender_can_be_run_whole_and_in_pieces():
    scenario = random_scenario(SMALL, "cpu")
    known = contenders(SMALL, scenario, ("float32",))
    assert [one.name for one in known][:4] == ["plain loop", "torch.func", "loop", "vectorised"]
    for contender in known:
        contender.timesteps()()
        pieces = contender.pieces()
        for piece in (pieces.round, pieces.observe, pieces.score):
            if piece is not None:
                piece()


def test_contenders_of_a_precision_that_was_not_asked_for_are_judged_too():
    """On a GPU the plain loop multiplies in TF32, whatever is asked of ours."""
    tiny = replace(SMALL, clients=10, participants=10, timesteps=1)
    found = measure(tiny, "cpu", ("bf16",), 1, False, lambda *_: None)
    assert {"float32", "bf16", "bytes"} <= set(found.ceilings)


def test_costs_are_those_of_the_layers():
    work = Work(samples=7)
    unit = unit_costs(work)
    planes = {32: 1024, 64: 256, 128: 64}
    products = 27 * 32 * planes[32] + 10 * 128
    for inputs, outputs in ((32, 32), (32, 64), (64, 128)):
        shortcut = 0 if inputs == outputs else inputs * outputs
        products += (9 * inputs * outputs + 9 * outputs * outputs + shortcut) * planes[outputs]
    assert unit.forward.flops == 2 * work.samples * products
    without_first_gradient = 27 * 32 * planes[32]
    assert unit.step.flops == 2 * work.samples * (3 * products - without_first_gradient)
    assert unit.step.traffic > unit.forward.traffic > 0


def test_the_plain_loop_does_three_more_passes_a_round():
    """Two signals and two personal passes, where the simulator computes features once."""
    work = Work()
    unit = unit_costs(work)
    more = plain_costs(work, unit)[0].flops - simulated_costs(work, unit)[0].flops
    assert more == pytest.approx(3 * work.participants * unit.forward.flops)


def test_a_measurement_names_all_that_was_asked():
    found = measure(SMALL, "cpu", ("float32",), 1, True, lambda *_: None)
    plain = json.loads(json.dumps(found.as_plain()))
    assert {"seconds_reference", "seconds_ours", "speedup", "device", "unit", "ceilings", "profile"} <= set(plain)
    assert plain["unit"] == "round"
    assert plain["speedup"] == pytest.approx(plain["seconds_reference"] / plain["seconds_ours"])
    assert found.timings[0].speedup == 1
    assert plain["seconds_ours"] == min(
        one.seconds_round for one in found.timings if one.name in ("loop", "vectorised", "auto")
    )
    assert all(value > 0 for one in found.timings for value in asdict(one).values() if not isinstance(value, str))
    assert sum(share.share for share in found.profile) <= 1 + 1e-9
    assert any("conv" in share.operation for share in found.profile)


def test_the_command_prints_one_object_or_a_table(monkeypatch):
    monkeypatch.setitem(WORKS, "cifar10", SMALL)
    runner = CliRunner()
    printed = runner.invoke(app, ["speed", "--json", "--repeats", "1", "--clients", "12", "--rounds", "2"])
    assert printed.exit_code == 0, printed.output
    found = json.loads(printed.stdout)
    assert (found["work"]["clients"], found["work"]["rounds"], found["device"]) == (12, 2, "cpu")
    table = runner.invoke(app, ["speed", "--repeats", "1"])
    assert "plain loop" in table.stdout
    assert "measured ceilings" in table.stdout


def test_networks_from_elsewhere_are_timed_and_their_layers_named(monkeypatch):
    monkeypatch.setitem(WORKS, "cifar10", SMALL)
    words = ["speed", "--repeats", "1", "--model", "import:tests.models.test_traced:Classifier"]
    found = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert found["work"]["model"] == words[-1]
    assert found["layers"]["fused"][0] == "body.0"
    assert "layers that run fused: 6 of 6" in CliRunner().invoke(app, words).stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--precision", "bf16"], "--precision bf16: not on cpu; choose from float32"),
        (["--work", "mnist"], "--work mnist: unknown; choose from cifar10, tiny-imagenet"),
    ],
)
def test_wrong_words_are_one_line(words, message):
    with pytest.raises(FedadeError, match=message):
        CliRunner().invoke(app, ["speed", *words], catch_exceptions=False)


@pytest.mark.parametrize("model", ["resnet-3block", "resnet18"])
def test_the_plain_loop_is_made_of_pytorchs_own_layers(model):
    """Ours are faster, and a comparison with them would hide it."""
    plain = PlainModel(replace(Work(), model=model).network())
    ours = {type(part).__name__ for part in plain.modules() if type(part).__module__.startswith("fedade.models")}
    assert ours <= {"Pixels", "GlobalAverage", "BasicBlock"}
