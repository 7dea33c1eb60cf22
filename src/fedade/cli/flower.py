"""`fedade flower`."""

import json
import time
from pathlib import Path
from typing import Annotated

import typer

from fedade.cli.options import DEFAULT, DataDir, Json, Set, What, loading, writable_file, writable_folder
from fedade.core.errors import FedadeError
from fedade.flower import CONNECTION, DAYS

app = typer.Typer(
    help="Run methods on real clients, over a network, with Flower.", no_args_is_help=True, add_completion=False
)


@app.command("up")
def up_command(
    what: What = DEFAULT,
    clients: Annotated[int, typer.Option(min=1, help="Clients to start.")] = 4,
    insecure: Annotated[bool, typer.Option("--insecure", help="Without TLS and node authentication.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(callback=writable_folder, help="Folder of the run.", show_default="runs/flower-NAME-HASH"),
    ] = None,
    set_: Set = None,
    data_dir: DataDir = None,
    json_: Json = False,
) -> None:
    """Try a method on this machine: start a SuperLink and clients, run, and stop all of them."""
    with loading():
        from fedade.cli.choosing import named_settings
        from fedade.experiments.presets import PRESETS

        settings = named_settings(what, set_, data_dir)
        from fedade.cli.progress import progress_bars
        from fedade.flower.federation import Trial, trial_task
        from fedade.flower.overview import troubles
        from fedade.products.run_folder import fingerprint
    task = trial_task(settings, clients)
    name = what if what in PRESETS else Path(what).stem
    folder = (out or Path("runs") / f"flower-{name}-{fingerprint(task.experiment)}").resolve()
    with progress_bars(quiet=json_) as report:
        found = Trial(task, folder, insecure, report).run()
    if json_:
        typer.echo(json.dumps(found))
        return
    first = found["results"][0]
    typer.echo(f"{first['method']}: accuracy {100 * first['accuracy_post']:.2f}% after adaptation, {clients} clients")
    for line in troubles(found["flower"]):
        typer.echo(line)
    typer.echo(f"report: {folder / 'report.html'}")


@app.command("init")
def init_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the new app.")],
    what: What = DEFAULT,
    set_: Set = None,
    data_dir: DataDir = None,
    json_: Json = False,
) -> None:
    """Make a Flower app: a shim, one configuration file and, for real streams, the deployment that hosts are given."""
    with loading():
        from fedade.cli.choosing import named_settings

        settings = named_settings(what, set_, data_dir)
        from fedade.cli.progress import progress_bars
        from fedade.flower.bundle import init_app
    with progress_bars(quiet=json_) as report:
        made = init_app(folder, settings, report)
    _print_files(made, json_)


@app.command("certs")
def certs_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of certificates and keys.")],
    host: Annotated[list[str] | None, typer.Option(help="Name or address of the SuperLink; repeatable.")] = None,
    node: Annotated[list[str] | None, typer.Option(help="Client to make a key for; repeatable.")] = None,
    days: Annotated[int, typer.Option(min=1, help="How long certificates are valid.")] = DAYS,
    json_: Json = False,
) -> None:
    """Make a certificate authority, a server certificate and node keys; what exists is kept."""
    with loading():
        from fedade.flower.certificates import make_certificates
    _print_files(make_certificates(folder, host or [], node or [], days), json_)


@app.command("run")
def run_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the app.")],
    out: Annotated[Path, typer.Option(help="Folder of the run, on the host of the SuperLink.")],
    superlink: Annotated[str, typer.Option(help="The connection's name in Flower's configuration.")] = CONNECTION,
    deployment: Annotated[Path | None, typer.Option(help="The stored deployment, on that host.")] = None,
    after: Annotated[Path | None, typer.Option(help="An earlier run's folder: begin with its shared layers.")] = None,
    json_: Json = False,
) -> None:
    """Submit an app to a SuperLink and wait for its end; the same command continues a run that was cut off."""
    with loading():
        from fedade.cli.progress import progress_bars
        from fedade.flower.flwr_commands import submit_and_watch
    paths = {"out": out, "deployment": deployment, "after": after}
    with progress_bars(quiet=json_) as report:
        run, status = submit_and_watch(folder, superlink, paths, report)
    typer.echo(json.dumps({"run": run, "status": status, "out": str(out)}) if json_ else f"run {run}: {status}")


@app.command("sign")
def sign_command(
    folder: Annotated[Path, typer.Argument(metavar="APP", help="Folder of the app.")],
    certificates: Annotated[Path, typer.Argument(metavar="CERTS", help="Folder of certificates, with app.key.")],
    json_: Json = False,
) -> None:
    """Sign an app as it is now: nodes run signed apps only."""
    with loading():
        from fedade.flower.admission import sign_app
    _print_files([sign_app(folder, certificates)], json_)


@app.command("superlink")
def superlink_command(
    certificates: Annotated[Path, typer.Argument(metavar="CERTS", help="Folder of certificates and public keys.")],
    home: Annotated[Path, typer.Option(help="Where the SuperLink keeps what it knows.")],
    host: Annotated[str, typer.Option(help="Address that nodes come to.")] = "0.0.0.0",  # noqa: S104
    port: Annotated[int, typer.Option(help="Port that nodes come to.")] = 8000,
    local_port: Annotated[int, typer.Option(help="Port on loopback, for who submits runs on this host.")] = 8001,
) -> None:
    """Run a SuperLink that nodes with a registered key can reach, and nobody else; for a service manager."""
    with loading():
        from fedade.flower.services import run_superlink
    run_superlink(certificates.resolve(), home.resolve(), host, port, local_port)


@app.command("node")
def node_command(
    certificates: Annotated[Path, typer.Argument(metavar="CERTS", help="Folder with the client's certificates.")],
    client: Annotated[str, typer.Argument(metavar="NAME", help="The client's name, as in `flower certs --node`.")],
    superlink: Annotated[str, typer.Option(metavar="HOST:PORT", help="Address of the SuperLink.")],
    state_dir: Annotated[Path, typer.Option(help="Where the client keeps its state.")],
    deployment: Annotated[Path | None, typer.Option(help="The stored deployment.")] = None,
    stream: Annotated[Path | None, typer.Option(help="Another folder of batches than the app names.")] = None,
    labelled: Annotated[Path | None, typer.Option(help="The client's own labelled data.")] = None,
    allow_import: Annotated[
        list[str] | None, typer.Option(metavar="MODULE", help="A module that apps may name; repeatable.")
    ] = None,
) -> None:
    """Be a client: connect to a SuperLink and take part in runs of signed apps, until told to end."""
    paths = {"deployment": deployment, "stream": stream, "labelled": labelled}
    said = {"client": client, "state-dir": str(state_dir.resolve())}
    said |= {name: str(path.resolve()) for name, path in paths.items() if path is not None}
    if allow_import:
        said["imports"] = " ".join(allow_import)
    with loading():
        from fedade.flower.services import run_client
    run_client(certificates.resolve(), superlink, said)


@app.command("nodes", hidden=True)
def nodes_command(
    superlink: Annotated[str, typer.Option(metavar="HOST:PORT", help="Address of the SuperLink.")],
    node_config: Annotated[list[str], typer.Option(help='\'client="NAME" KEY="VALUE" ...\'; repeatable.')],
    root_certificates: Annotated[Path | None, typer.Option(help="The authority's certificate, ca.crt.")] = None,
    key: Annotated[list[Path] | None, typer.Option(help="The client's private key, node.key; repeatable.")] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Without TLS and node authentication.")] = False,
) -> None:
    """Be several clients of a trial on this machine, whose apps need no signature."""
    if insecure == bool(root_certificates or key) or (key and len(key) != len(node_config)):
        raise FedadeError("give --root-certificates and a --key for each --node-config, or --insecure")
    with loading():
        from fedade.flower.node import clients_of, run_nodes
    run_nodes(clients_of(superlink, root_certificates, key or [], node_config))


@app.command("predict")
def predict_command(
    state: Annotated[Path, typer.Argument(metavar="STATE", help="Folder of the client's state: STATE-DIR/NAME.")],
    inputs: Annotated[Path, typer.Argument(metavar="INPUTS", help="A .npy file, or a .npz file with `inputs`.")],
    out: Annotated[
        Path | None, typer.Option(callback=writable_file, help="A .npy file for the probabilities.", dir_okay=False)
    ] = None,
    json_: Json = False,
) -> None:
    """Predict by what a client has learned: ask its node, or read its newest state where none runs."""
    with loading():
        from fedade.core import storage
        from fedade.flower.endpoint import array_of, node_or_state
    if not inputs.is_file():
        raise FedadeError(f"{inputs} does not exist; give a .npy file of inputs")
    with node_or_state(state.resolve()) as answering:
        probabilities = answering.predict(array_of(inputs.read_bytes()))
    if out is not None:
        storage.write_array(out, probabilities)
    classes = probabilities.argmax(-1).tolist()
    if json_:
        typer.echo(json.dumps({"classes": classes, "probabilities": probabilities.tolist()}))
    else:
        typer.echo("\n".join(str(each) for each in classes))


Place = Annotated[Path, typer.Argument(metavar="PLACE", help="Folder of a run, or of a client's state.")]


@app.command("status")
def status_command(place: Place, json_: Json = False) -> None:
    """Tell how a fleet, or one client of this host, is doing."""
    with loading():
        from rich.console import Console

        from fedade.flower.overview import status_at, table_of
    status = status_at(place)
    if json_:
        typer.echo(json.dumps(status))
    else:
        Console().print(table_of(status))


@app.command("watch")
def watch_command(
    place: Place, seconds: Annotated[float, typer.Option(min=0.1, help="Between two looks.")] = 2.0
) -> None:
    """Show how a fleet is doing until its run has ended, or Ctrl-C."""
    with loading():
        from rich.live import Live

        from fedade.flower.overview import status_at, table_of
    with Live(table_of(status_at(place)), auto_refresh=False) as live:
        while True:
            status = status_at(place)
            live.update(table_of(status), refresh=True)
            if status.get("finished") or "error" in status:
                return
            time.sleep(seconds)


def _print_files(made: list[Path], json_: bool) -> None:
    paths = [str(path) for path in made]
    typer.echo(json.dumps(paths) if json_ else "\n".join(paths))
