"""Differential privacy: what is clipped, what is added, what is counted."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedade.core.errors import FedadeError
from fedade.flower.overview import read_status
from fedade.flower.privacy import PrivacyAccount, clipped
from fedade.flower.server_app import adapt
from fedade.flower.settings import PrivacySettings

from .hostile import uplink

SETTINGS = PrivacySettings(noise_multiplier=1.0, clipping_norm=0.5)


@given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_an_update_ends_within_the_norm_in_its_own_direction(length, norm):
    shared = {"a": torch.zeros(3), "b": torch.ones(2)}
    update = {"a": torch.tensor([0.6, 0.0, 0.0]) * length, "b": torch.ones(2) + torch.tensor([0.0, 0.8]) * length}
    moved = clipped(update, shared, norm)
    step = torch.cat([moved[name] - shared[name] for name in shared])
    expected = min(length, norm) * torch.tensor([0.6, 0.0, 0.0, 0.0, 0.8])
    torch.testing.assert_close(step, expected, rtol=1e-3, atol=1e-4)


def test_an_update_that_changes_nothing_stays():
    same = {"a": torch.ones(3)}
    assert clipped(same, same, 1.0) is same


def test_other_things_than_the_shared_layers_are_refused():
    with pytest.raises(FedadeError, match="other things than the shared layers"):
        clipped({"a": torch.ones(1), "counts": torch.ones(1)}, {"a": torch.ones(1)}, 1.0)


def test_the_noise_has_the_promised_size_and_never_repeats(tmp_path):
    account = PrivacyAccount.open(SETTINGS, tmp_path / "privacy.json", population=10)
    zero = {"a": torch.zeros(20_000)}
    first, second = account.release(zero, 5)["a"], account.release(zero, 5)["a"]
    assert float(first.std()) == pytest.approx(1.0 * 0.5 / 5, rel=0.05)
    assert not torch.equal(first, second)
    assert torch.equal(zero["a"], torch.zeros(20_000))


def test_epsilon_grows_with_releases_and_survives_a_restart(tmp_path):
    path = tmp_path / "privacy.json"
    account = PrivacyAccount.open(SETTINGS, path, population=10)
    account.release({"a": torch.zeros(1)}, 5)
    once = account.spent()["epsilon"]
    # One Gaussian release with noise 1 at δ = 1e-5: ε = 4.38 exactly (Balle and Wang, 2018); Rényi accounts bound it.
    assert 4.3 < once < 5.5
    again = PrivacyAccount.open(SETTINGS, path, population=10)
    again.release({"a": torch.zeros(1)}, 5)
    assert again.spent()["releases"] == 2
    assert again.spent()["epsilon"] > once


def test_the_budget_is_never_overdrawn(tmp_path):
    tight = SETTINGS.model_copy(update={"max_epsilon": 6.0})
    account = PrivacyAccount.open(tight, tmp_path / "privacy.json", population=10)
    account.release({"a": torch.zeros(1)}, 5)
    with pytest.raises(FedadeError, match=r"would spend more than 6.0; so far ε ="):
        account.release({"a": torch.zeros(1)}, 5)
    assert account.spent()["releases"] == 1


def test_a_private_run_reports_its_epsilon(make_task, make_grid, tmp_path):
    privacy = {"noise_multiplier": 2.0, "clipping_norm": 0.01}
    task = make_task(flower={"privacy": privacy})
    adapt(task, make_grid(task), tmp_path / "out")
    spent = read_status(tmp_path / "out")["privacy"]
    assert spent["releases"] == 4
    assert np.isfinite(spent["epsilon"])
    assert "not the diagnostics" in spent["covers"]


def test_updates_leave_a_private_client_clipped(make_task, make_grid, tmp_path):
    task = make_task(protocol={"rounds": 1}, scenario={"num_timesteps": 1}, flower={
        "privacy": {"noise_multiplier": 2.0, "clipping_norm": 1e-4}
    })  # fmt: skip
    grid = make_grid(task)
    adapt(task, grid, tmp_path / "out")
    sent = [tensors for message in grid.received if (tensors := uplink(message.content))]
    assert len(sent) == 2
    distances = [torch.sqrt(sum(((sent[0][name] - sent[1][name]) ** 2).sum() for name in sent[0]))]
    assert 0 < float(distances[0]) <= 2.1e-4


def test_methods_that_send_more_are_refused_before_anything_is_sent(make_task, make_grid, tmp_path):
    task = make_task(methods=["fed-ccfa"], flower={"privacy": {"noise_multiplier": 1.0, "clipping_norm": 1.0}})
    grid = make_grid(task)
    with pytest.raises(FedadeError, match="other things than the shared layers"):
        adapt(task, grid, tmp_path / "out")
