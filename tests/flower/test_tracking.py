"""Trackers of a Flower run get what clients share, and nothing else."""

import pytest

from fedade.flower.server_app import serve

pytest.importorskip("tensorboard")


def tags(folder):
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    steps = {}
    for path in folder.rglob("events.out.*"):
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                steps.setdefault(value.tag, []).append(event.step)
    return steps


def test_a_tracker_of_the_server_hears_every_timestep_of_what_is_shared(make_task, make_grid, tmp_path):
    task = make_task(scenario={"num_timesteps": 2}, flower={"track": ["tensorboard"], "share": ["accuracy_post", "s"]})
    serve(task, make_grid(task), tmp_path / "out")
    found = tags(tmp_path / "out" / "tensorboard")
    assert found["accuracy_post"] == found["s"] == [1, 2]
    assert {"accuracy_pre", "s_unc", "learning_rate"}.isdisjoint(found), "not shared, so not told"
