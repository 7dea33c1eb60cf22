"""`fedade.simulate` on deployments and streams that a user has made: the same runner, the same numbers."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import fedade
from fedade.checking.trials import SMALL
from fedade.methods.source import Source
from fedade.scenarios.building import build_testbed
from fedade.scenarios.settings import ScenarioSettings

PROTOCOL = {"rounds": 1, "participation": 0.5}


class Lazy(Source):
    """A method of the user's, given as an object."""

    laziness: float = 0.5


@pytest.fixture(scope="module")
def deployment():
    with torch.random.fork_rng():
        torch.random.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    return fedade.deploy(model, data(0))


def data(seed: int, count: int = 90) -> tuple[np.ndarray, np.ndarray]:
    labels = np.arange(count) % 3
    return (np.random.default_rng(seed).normal(size=(count, 4)) + labels[:, None]).astype(np.float32), labels


def drifting(seed: int = 0, **changes):
    return fedade.drifting_streams(
        *data(1), **{"num_clients": 4, "num_timesteps": 3, "samples": 8, "seed": seed, **changes}
    )


def test_own_streams_give_the_same_numbers_as_settings(cache, tmp_path):
    """The testbed that settings build, taken apart and given by hand."""
    settings = ScenarioSettings(**SMALL, reference="common")
    testbed = build_testbed(settings, "cpu", Path(cache), lambda done, of: None)
    methods = ["source", {"fed-ade": {"rate": {"low": 1e-3, "high": 1e-2}}}]
    by_settings = fedade.simulate(
        methods, {"scenario": settings.model_dump(mode="json")}, seeds=(0, 1), protocol=PROTOCOL, out=tmp_path / "a"
    )
    by_hand = fedade.simulate(
        methods,
        testbed.deployment,
        lambda seed: testbed.scenario("lin", seed).streams,
        seeds=(0, 1),
        protocol=PROTOCOL,
        out=tmp_path / "b",
    )
    columns = ["method", "seed", "client", "timestep", "accuracy_pre", "accuracy_post", "bytes_sent"]
    assert by_hand.trace.select(columns).equals(by_settings.trace.select(columns))


def test_results_have_a_table_figures_a_page_and_every_row(deployment, tmp_path):
    results = fedade.simulate(["source", Lazy(laziness=0.25)], deployment, drifting, seeds=(3, 4), out=tmp_path / "r")
    assert [row.method for row in results.table] == ["source", f"{__name__}:Lazy"]
    assert len(results.trace) == 2 * 2 * 4 * 3
    assert "accuracy" in results.figures
    assert "own streams" in results.page.read_text()
    assert {(one.method, one.seed) for one in results.by_seed} >= {("source", 3), ("source", 4)}
    assert not results.failed


def test_a_finished_simulation_is_read_again_and_another_is_refused(deployment, tmp_path):
    class Counting(fedade.Listener):
        started = 0

        def on_start(self, cell, timestep):
            Counting.started += 1

    for _ in range(2):
        fedade.simulate(["source"], deployment, drifting(), listeners=[Counting()], out=tmp_path / "r")
    assert Counting.started == 1
    with pytest.raises(fedade.FedadeError, match="holds another run"):
        fedade.simulate(["source"], deployment, drifting(seed=7), out=tmp_path / "r")


def test_own_shifts_are_a_few_lines(deployment, tmp_path):
    """A schedule, last class frequencies and a corruption of the user's own."""
    streams = drifting(
        kind="both",
        schedule=[0, 0.5, 1, 1],
        last_priors=[0, 0, 1],
        corruptions=[lambda rows, severity: rows + 100 * severity],
    )
    middle, end = (streams.draw(np.arange(4), timestep) for timestep in (1, 2))
    assert middle.severity.tolist() == [2] * 4
    assert middle.inputs.min() > 150
    assert (end.labels == 2).all()
    assert not fedade.simulate(["source", "fed-ade-plus"], deployment, streams, out=tmp_path / "r").failed


def test_recorded_batches_are_streamed_as_they_came(deployment, tmp_path):
    inputs, labels = torch.rand(2, 3, 8, 4), torch.arange(48).view(2, 3, 8) % 3
    streams = fedade.recorded_streams([[*batches] for batches in inputs], labels.tolist(), num_classes=3)
    batch = streams.draw(np.array([1]), 2)
    assert torch.equal(batch.inputs[0], inputs[1, 1])
    torch.testing.assert_close(batch.prior.sum(-1), torch.ones(1))
    assert len(fedade.simulate(["source"], deployment, streams, out=tmp_path / "r").trace) == 6
    with pytest.warns(RuntimeWarning, match="1 of 1 have no result; source: .*no second draw"):
        fresh = fedade.simulate(["source"], deployment, streams, protocol={"score_fresh": True}, out=tmp_path / "f")
    assert "recorded streams have no second draw" in fresh.failed["source"]


def test_predictions_that_overflow_are_no_matter_of_a_rate_where_there_is_none(deployment, tmp_path):
    rows, labels = data(1)
    streams = fedade.drifting_streams(rows * 1e30, labels, num_clients=2, num_timesteps=2)
    with pytest.warns(RuntimeWarning, match="have no result"):
        results = fedade.simulate("fed-ade-plus", deployment, streams, out=tmp_path / "r")
    assert (
        "not finite, the model overflows; scale the stream's inputs as the held-out ones are"
        in results.failed["fed-ade-plus"]
    )


def test_grey_and_colour_images_are_corrupted():
    for channels, name in ((1, "noise"), (3, "brightness")):
        images = torch.full((2, channels, 32, 32), 100, dtype=torch.uint8)
        assert torch.equal(fedade.corrupt_images(images, name, 0), images)
        assert not torch.equal(fedade.corrupt_images(images, name, 5), images)


def test_a_listener_that_fails_is_warned_of(deployment, tmp_path):
    class Clumsy(fedade.Listener):
        def on_rows(self, cell, timestep, rows):
            raise ValueError("dropped")

    with pytest.warns(RuntimeWarning, match="2 of 2 have no result; source: .*dropped; results.failed has all"):
        fedade.simulate(["source", "tent"], deployment, drifting(), listeners=[Clumsy()], out=tmp_path / "r")


def test_pandas_is_what_a_data_frame_wants(deployment, tmp_path, monkeypatch):
    results = fedade.simulate("source", deployment, drifting(), out=tmp_path / "r")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(fedade.FedadeError, match="install it with: pip install 'pandas'"):
        results.data_frame()


class Drawing:
    """Streams that draw something for two clients."""

    num_clients, num_timesteps = 2, 1

    def __init__(self, drawn):
        self.drawn = drawn

    def draw(self, clients, timestep, purpose="stream"):
        return self.drawn


def batch_of(clients: int) -> fedade.Batch:
    prior = torch.full((clients, 3), 1 / 3)
    return fedade.Batch(torch.rand(clients, 5, 4), torch.zeros(clients, 5).long(), prior, torch.zeros(clients))


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda deployed: fedade.simulate(["source"], deployed), "a deployment needs streams"),
        (lambda deployed: fedade.simulate(["source"], "digits-label", drifting()), "streams go with a deployment"),
        (lambda deployed: fedade.simulate(["source"], deployed, drifting(), jobs=2), "leave jobs out"),
        (
            lambda deployed: fedade.simulate(
                ["source"], deployed, fedade.drifting_streams(torch.rand(9, 5), [0, 1, 2] * 3)
            ),
            r"streams hold inputs of shape \[5\], and the deployment takes \[4\]",
        ),
        (
            lambda deployed: fedade.simulate(
                ["source"], deployed, fedade.drifting_streams(torch.rand(8, 4), [0, 1] * 4)
            ),
            "streams have 2 classes, and the deployment 3",
        ),
        (
            lambda deployed: fedade.simulate(
                ["source"], deployed, fedade.drifting_streams(torch.ones(9, 4).long(), [0, 1, 2] * 3)
            ),
            "streams hold torch.int64 inputs, and the deployment takes torch.float32; convert them",
        ),
        (
            lambda deployed: fedade.simulate(
                ["source"],
                deployed,
                fedade.recorded_streams(torch.ones(2, 3, 8, 4).long(), torch.zeros(2, 3, 8).long(), 3),
            ),
            "streams hold torch.int64 inputs, and the deployment takes torch.float32",
        ),
        (lambda deployed: fedade.simulate("source", deployed, 5), "streams are a int; pass fedade.drifting_streams"),
        (lambda deployed: fedade.simulate("source", deployed, lambda seed: 5), "streams are a int"),
        (lambda deployed: fedade.simulate("source", deployed, Drawing((1, 2))), "draw a tuple; give a fedade.Batch"),
        (
            lambda deployed: fedade.simulate("source", deployed, Drawing(batch_of(3))),
            r"streams draw inputs \[3, 5, 4\].* for 2 clients; the first axis of each is the clients'",
        ),
        (lambda deployed: fedade.simulate("source", 5), "the scenario is a int; pass a preset"),
        (lambda deployed: fedade.simulate("source", deployed, drifting(), seeds=3), r"such as seeds=\[3\]"),
        (lambda deployed: fedade.simulate("source", deployed, drifting(), listeners=[print]), "derive from fedade.Lis"),
        (
            lambda deployed: fedade.simulate("source", deployed, drifting(), listeners=fedade.Listener()),
            "listeners are not a list",
        ),
        (lambda deployed: drifting(last_priors=[0.1, 0.1, 0.1]), "last_priors sum to 0.3; each client's"),
        (lambda deployed: drifting(kind="covariate", corruptions=[5]), "corruption 5 is neither a name nor a function"),
        (
            lambda deployed: drifting(kind="covariate", corruptions=[lambda rows, severity: rows[:3]]).draw(
                np.arange(4), 3
            ),
            r"corruption 0 gives .*\[3, 4\].* for inputs \[90, 4\]; return a tensor of the same shape",
        ),
        (lambda deployed: drifting(schedule="sine"), "schedule: there is no such schedule; did you mean sin"),
        (lambda deployed: drifting(schedule=[0, 1]), r"schedule .*\[2\]; pass \[4, 4\] or \[4\] numbers from 0 to 1"),
        (lambda deployed: drifting(kind="covariate"), "kind covariate needs corruptions"),
        (lambda deployed: drifting(corruptions=["fog"]), "kind label has no use for corruptions"),
        (lambda deployed: drifting(kind="both", corruptions=["fog"]), r"images to corrupt are float32 \[1, 4\]"),
        (
            lambda deployed: fedade.simulate("sourc", deployed, drifting()),
            "unknown method 'sourc'; did you mean source",
        ),
        (lambda deployed: drifting(num_clients=0), "num_clients: Input should be greater than or equal to 1"),
        (lambda deployed: fedade.drifting_streams(torch.rand(2, 4), [0, 2]), "class 1 has no example to stream"),
        (lambda deployed: fedade.recorded_streams(torch.rand(2, 3), [0, 1], 2), "do not belong together"),
        (
            lambda deployed: fedade.recorded_streams([[torch.rand(8, 4), torch.rand(7, 4)]], [[[0] * 8, [0] * 7]], 2),
            r"pass \[clients, timesteps, samples, ...\] and .* of numbers, all batches of one size",
        ),
        (lambda deployed: fedade.corrupt_images(torch.rand(2, 3, 8, 8), "fog", 1), "images to corrupt are float32"),
    ],
)
def test_what_does_not_fit_is_one_line(call, told, deployment, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(fedade.FedadeError, match=told) as error:
        call(deployment)
    assert "\n" not in str(error.value)
