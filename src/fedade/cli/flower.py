"""`fedade flower`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from fedade.cli.loading import loading
from fedade.cli.options import DEFAULT, DataDir, Json, Set, What
from fedade.flower.certificates import DAYS, make_certificates
from fedade.flower.flwr_commands import CONNECTION

app = typer.Typer(
    help="Run methods on real clients, over a network, with Flower.", no_args_is_help=True, add_completion=False
)


@app.command("up")
def up_command(
    what: What = DEFAULT,
    clients: Annotated[int, typer.Option(min=1, help="SuperNodes to start.")] = 4,
    insecure: Annotated[bool, typer.Option("--insecure", help="Without TLS and node authentication.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder of the run.", show_default="runs/flower-NAME-HASH")] = None,
    set_: Set = None,
    data_dir: DataDir = None,
    json_: Json = False,
) -> None:
    """Try a method on this machine: start a SuperLink and SuperNodes, run, and stop all of them."""
    with loading():
        from fedade.cli.choosing import named_settings
        from fedade.experiments.presets import PRESETS

        settings = named_settings(what, set_, data_dir)
        from fedade.cli.progress import progress_bars
        from fedade.flower.run_folder import troubles
        from fedade.flower.trial import Trial, trial_task
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
        from fedade.flower.app_template import init_app
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
    _print_files(make_certificates(folder, host or [], node or [], days), json_)


@app.command("run")
def run_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the app.")],
    out: Annotated[Path, typer.Option(help="Folder of the run, on the host of the SuperLink.")],
    superlink: Annotated[str, typer.Option(help="The connection's name in Flower's configuration.")] = CONNECTION,
    deployment: Annotated[Path | None, typer.Option(help="The stored deployment, on that host.")] = None,
    json_: Json = False,
) -> None:
    """Submit an app to a SuperLink and wait for its end; the same command continues a run that was cut off."""
    with loading():
        from fedade.cli.progress import progress_bars
        from fedade.flower.submission import submit_and_watch
    with progress_bars(quiet=json_) as report:
        run, status = submit_and_watch(folder, superlink, out, deployment, report)
    typer.echo(json.dumps({"run": run, "status": status, "out": str(out)}) if json_ else f"run {run}: {status}")


@app.command("sign")
def sign_command(
    folder: Annotated[Path, typer.Argument(metavar="APP", help="Folder of the app.")],
    certificates: Annotated[Path, typer.Argument(metavar="CERTS", help="Folder of certificates, with app.key.")],
    json_: Json = False,
) -> None:
    """Sign an app as it is now: nodes run signed apps only."""
    with loading():
        from fedade.flower.signatures import sign_app
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
        from fedade.flower.services import LinkService
    LinkService(certificates.resolve(), home.resolve(), host, port, local_port).run()


@app.command("supernode")
def supernode_command(
    certificates: Annotated[Path, typer.Argument(metavar="CERTS", help="Folder with the client's certificates.")],
    client: Annotated[str, typer.Argument(metavar="NAME", help="The client's name, as in `flower certs --node`.")],
    superlink: Annotated[str, typer.Option(help="The SuperLink, HOST:PORT.")],
    state_dir: Annotated[Path, typer.Option(help="Where the client keeps its state.")],
    deployment: Annotated[Path | None, typer.Option(help="The stored deployment.")] = None,
    stream: Annotated[Path | None, typer.Option(help="Another folder of batches than the app names.")] = None,
    labelled: Annotated[Path | None, typer.Option(help="The client's own labelled data.")] = None,
    allow_import: Annotated[
        list[str] | None, typer.Option(metavar="MODULE", help="A module that apps may name; repeatable.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Of the node's own programs, on loopback.", show_default="any that is free")
    ] = None,
) -> None:
    """Run the SuperNode of a client, which runs signed apps only; for a service manager."""
    with loading():
        from fedade.flower.services import run_supernode
    paths = {"deployment": deployment, "stream": stream, "labelled": labelled}
    said = {name: str(path.resolve()) for name, path in paths.items() if path is not None}
    if allow_import:
        said["imports"] = " ".join(allow_import)
    run_supernode(certificates.resolve(), client, superlink, state_dir.resolve(), said, port)


def _print_files(made: list[Path], json_: bool) -> None:
    paths = [str(path) for path in made]
    typer.echo(json.dumps(paths) if json_ else "\n".join(paths))
