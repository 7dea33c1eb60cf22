"""The Flower server: a run folder like the simulator's, written over the network."""

import os
import secrets
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path

import filelock
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedade.core import trace
from fedade.core.errors import FedadeError
from fedade.core.events import Listener, Listeners
from fedade.core.method import with_rounds
from fedade.core.paths import CONFIG, cache_dir
from fedade.experiments.cell import cells_of
from fedade.flower import checkpoint
from fedade.flower.admission import NODES_VARIABLE, names_of_nodes
from fedade.flower.bounds import refuse_personal_downlinks
from fedade.flower.checkpoint import Progress
from fedade.flower.client_app import stored_deployment
from fedade.flower.exchange import Exchange
from fedade.flower.members import Roster
from fedade.flower.overview import metrics_at, write_status
from fedade.flower.privacy import PrivacyAccount, refuse_other_layers
from fedade.flower.rows import PlainRow, by_timestep, columns, whole_trace
from fedade.flower.server import Server
from fedade.flower.settings import FlowerTask, read_task
from fedade.flower.wire import most_bytes_of, named_leaves, rehearse
from fedade.listeners import trackers_named
from fedade.products.run_folder import run
from fedade.runner.store import CellFolder, claim
from fedade.scenarios.building import build_deployment

PREDECESSOR_SECONDS = 60.0
MEMBER_FIELDS = ("name", "timestep", "last_seen", "trouble", "measures", "away")


def server_app(folder: Path) -> ServerApp:
    """The server of the task in an app's folder; the run configuration says where results go."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        out = Path(str(context.run_config["out"])).resolve()
        told = [context.run_config.get(key) for key in ("deployment", "after")]
        stored, after = (Path(str(path)) if path else None for path in told)
        serve(read_task(folder), grid, out, stored, after)

    return app


def serve(task: FlowerTask, grid: Grid, out: Path, stored: Path | None = None, after: Path | None = None) -> None:
    """Run a task, or continue it from its last checkpoint, and write the run folder that the simulator would."""
    claim(out, CONFIG, task.experiment.identity())  # a folder that is not ours gets no word of ours, either
    write_status(out, {})
    try:
        # A server whose SuperLink was killed notices that only after some seconds, and may still write.
        with filelock.FileLock(out / ".flower.lock", timeout=PREDECESSOR_SECONDS):
            adapt(task, grid, out, stored, after)
        run(task.experiment, out)
    except filelock.Timeout as error:
        raise FedadeError(f"{out} is in use by another Flower run; wait for it or choose another --out") from error
    except FedadeError as error:
        write_status(out, {"error": str(error)})
        raise


def adapt(task: FlowerTask, grid: Grid, out: Path, stored: Path | None = None, after: Path | None = None) -> None:
    """The part of a run that needs its clients: all timesteps that are not done yet, and then the trace."""
    (cell,) = cells_of(task.experiment)
    place = CellFolder(out, cell)
    if place.trace.exists():
        return
    place.begin({"deployment": task.deployment or "built from the scenario"})
    trackers = trackers_named(task.flower.track, out)
    server = make_server(task, grid, place, stored, Listeners(trackers), after)
    try:
        with metrics_at(task.flower.metrics, partial(_figures, server)):
            rows = server.run()
    finally:
        for tracker in trackers:
            tracker.close()
    labels: dict[str, str | int] = {"method": cell.method, "seed": cell.seed}
    joined = [task.first_timestep(member.number) for member in server.roster]
    table = whole_trace(rows, labels, joined, task.experiment.scenario.num_timesteps)
    table = table.replace_schema_metadata({"seconds": f"{server.progress.seconds:.3f}"})
    trace.write(place.trace, table)
    checkpoint.discard(place.path, rows_only=task.deployment is not None)
    write_status(out, {"finished": True, **_figures(server)})


def make_server(
    task: FlowerTask, grid: Grid, place: CellFolder, stored: Path | None, listener: Listener, after: Path | None
) -> Server:
    """The server of a task, from its last checkpoint if there is one, with its clients gathered. A new run begins with
    the shared layers as deployed, or with those that the run in `after` ended with."""
    if task.deployment is None:
        deployment = build_deployment(task.experiment.scenario, "cpu", cache_dir(), lambda _done, _of: None)
    else:
        deployment = stored_deployment(task, stored)
    method, out, folder, cell = task.method(), place.store, place.path, place.info
    federated, forms = with_rounds(method), rehearse(method, deployment)
    refuse_personal_downlinks(forms.downlink, task.flower.aggregation)
    start = {} if federated is None else federated.begin_server(deployment)
    bound = os.environ.get(NODES_VARIABLE)
    roster = Roster(task.flower.clients, partial(names_of_nodes, Path(bound) if bound else None))
    exchange = Exchange(grid, roster, task.flower.timeout_seconds, most_bytes_of(forms))
    before = checkpoint.load(folder, start)
    if before is not None:
        roster.restore(before[1])
    wanted = task.flower.min_clients or task.experiment.scenario.num_clients
    exchange.gather(min(wanted, len(roster) or wanted), task.flower.join_seconds)
    if before is None:
        roster.number_by_name()
    settings = {"method": method.model_dump(mode="json"), "deployment": task.deployment}
    if before is not None:
        progress = before[0]
    else:
        shared = start if after is None else checkpoint.shared_after(after, start)
        progress = Progress(secrets.token_hex(8), 0, shared, settings, version=int(after is not None))
    if progress.settings != settings:
        raise FedadeError(f"{out} was begun with other settings of {task.method_name} or deployment; choose --out")
    account = None
    if (privacy := task.flower.privacy) is not None and federated is not None:
        refuse_other_layers(named_leaves(forms.uplink), named_leaves(start))
        account = PrivacyAccount.open(privacy, folder / "privacy.json", len(roster))

    def on_timestep(reported: list[PlainRow]) -> None:
        write_status(out, _figures(server))
        for timestep, rows in by_timestep(reported).items():
            listener.on_rows(cell, timestep, partial(columns, rows))

    listener.on_start(cell, progress.turn // task.rounds)
    server = Server(task, federated, deployment, forms, exchange, roster, progress, folder, account, on_timestep)
    return server


def _figures(server: Server) -> dict[str, object]:
    done, last = server.progress.turn // server.task.rounds, server.task.timesteps
    counted = ("refused", "failed", "scaled_back", "quarantined", "unanswered")
    return {
        "timestep": done if last is None else min(done, last),  # a last turn closes the last timestep
        "timesteps": last,
        "turns": server.progress.turn,
        "seconds": round(server.progress.seconds, 3),
        "updated": time.time(),
        "clients": [member.name for member in server.roster],
        "members": [{name: getattr(member, name) for name in MEMBER_FIELDS} for member in server.roster],
        "traffic": asdict(server.exchange.traffic),
        "impostors": server.roster.impostors,
        **{name: getattr(server.progress, name) for name in counted},
        "privacy": None if server.account is None else server.account.spent(),
    }
