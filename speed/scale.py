"""Does a timestep's time depend on how many clients exist? It should not: `python speed/scale.py`.

Two federations that differ in their number of clients only, with the same participants and the same number of scored
clients, are timed in alternation. Prints one JSON object; work counts what the cores did, whatever else they had to do.
"""

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path
from statistics import median

from fedade.core import tree
from fedade.core.seeds import Seeds
from fedade.engine.clock import Clock
from fedade.experiments.settings import ExecutionSettings
from fedade.runner.clocks import client_maps
from fedade.speed.workload import Work, random_scenario


def clock_of(clients: int, options: argparse.Namespace, folder: Path | None) -> Clock:
    """A federation of this many clients, of which some take part in the timestep's only round."""
    work = Work(
        clients=clients,
        participants=options.participants,
        rounds=1,
        timesteps=1 + options.timesteps,
        samples=options.samples,
        model=options.model,
        input_shape=(1, 8, 8) if options.model == "small-cnn" else (3, 32, 32),
    )
    scenario = random_scenario(work, "cpu")
    maps = client_maps(ExecutionSettings(), scenario, work.samples)
    return Clock(work.method, scenario, work.exchange_rounds, Seeds(0), maps, scored_clients=100, state_folder=folder)


def main() -> None:
    """Time both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--few", type=int, default=100)
    parser.add_argument("--many", type=int, default=100_000)
    parser.add_argument("--timesteps", type=int, default=3)
    parser.add_argument("--participants", type=int, default=10)
    parser.add_argument("--samples", type=int, default=50)
    parser.add_argument("--model", default="resnet-3block", help="small-cnn has images of 8x8 pixels")
    parser.add_argument("--file", action="store_true", help="keep the clients' states in memory-mapped files")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        clocks = {
            count: clock_of(count, options, Path(folder) / str(count) if options.file else None)
            for count in (options.few, options.many)
        }
        worlds = {count: clock.beginning() for count, clock in clocks.items()}
        steps = {count: clock.run(worlds[count]) for count, clock in clocks.items()}
        seconds: dict[int, list[float]] = {count: [] for count in clocks}
        work: dict[int, list[float]] = {count: [] for count in clocks}
        for _ in range(1 + options.timesteps):
            for count, running in steps.items():
                begun, working = time.perf_counter(), time.process_time()
                next(running)
                seconds[count].append(time.perf_counter() - begun)
                work[count].append(time.process_time() - working)
        few, many = (median(seconds[count][1:]) for count in (options.few, options.many))
        little, much = (median(work[count][1:]) for count in (options.few, options.many))
        print(json.dumps({
            "clients": [options.few, options.many],
            "seconds_per_timestep": [round(few, 3), round(many, 3)],
            "ratio": round(many / few, 3),
            "work_seconds": [round(little, 3), round(much, 3)],
            "work_ratio": round(much / little, 3),
            "state_megabytes": round(tree.num_bytes(worlds[options.many].clients) / 1e6, 1),
            "peak_memory_gigabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2),
        }))  # fmt: skip


if __name__ == "__main__":
    main()
