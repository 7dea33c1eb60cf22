"""`fedade pretrain`."""

import json
import time

import typer

from fedade.cli.options import DEFAULT, DataDir, Device, Json, Set, What, loading


def pretrain_command(
    what: What = DEFAULT, set_: Set = None, device: Device = None, data_dir: DataDir = None, json_: Json = False
) -> None:
    """Train and store the model that an experiment deploys; runs of the same settings then find it ready."""
    with loading():
        from fedade.cli.choosing import named_settings
        from fedade.experiments.settings import experiment_from

        experiment = experiment_from(named_settings(what, set_, data_dir, device))
        from fedade.cli.progress import progress_bars
        from fedade.core.paths import cache_dir
        from fedade.products.run_folder import check_device
        from fedade.scenarios.building import build_deployment
    begun = time.monotonic()
    with progress_bars(quiet=json_) as report:
        deployment = build_deployment(
            experiment.scenario,
            check_device(experiment.execution.device),
            cache_dir(),
            lambda done, of: report("pre-training", done, of),
        )
    found = {
        "model": experiment.scenario.model,
        "dataset": experiment.scenario.dataset,
        "parameters": sum(value.numel() for value in deployment.parameters.values()),
        "accuracy_held_out": float(deployment.accuracy),
        "temperature": float(deployment.temperature),
        "seconds": round(time.monotonic() - begun, 2),
    }
    told = (
        "{model} on {dataset}: {accuracy_held_out:.2%} on held-out samples, temperature {temperature:.2f}, {seconds} s"
    )
    typer.echo(json.dumps(found) if json_ else told.format(**found))
