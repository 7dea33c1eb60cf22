"""A fleet on a bad network: requests that are late, lost, or heard twice, with real processes."""

from dataclasses import replace

import pytest

from fedade.flower.processes import ProcessGroup

from .chaos import BadNetwork
from .deployments import Live
from .traces import assert_same, simulated, told


@pytest.mark.slow
def test_a_fleet_on_a_bad_network_has_the_simulators_numbers(make_task, tmp_path):
    task = make_task(
        scenario={"num_clients": 3, "num_timesteps": 3},
        protocol={"participation": 1.0},
        flower={"quorum": 1.0, "timeout_seconds": 200.0},
    )
    configs = [{"client": name, "state-dir": str(tmp_path / "state")} for name in task.flower.clients]
    with ProcessGroup() as processes:
        live = Live(processes, task, tmp_path, secure=True)
        with BadNetwork(live.federation.port, share=0.1, seed=5) as network:
            through = replace(live.federation, port=network.port)
            processes.start(through.nodes("nodes", configs))
            live.submit()
            status = live.wait()
    assert status["finished"]
    assert min(network.happened[kind] for kind in ("delayed", "cut", "answer")) > 0
    assert status["refused"] == {}
    assert_same(told(task, tmp_path / "out"), simulated(task, tmp_path / "simulator"))
