"""`fedade speed`."""

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, get_args

import typer
from rich.console import Console

from fedade.cli.options import Device, Json, loading, terminal_table
from fedade.core.errors import FedadeError

if TYPE_CHECKING:
    from fedade.core.precision import Precision
    from fedade.speed.measuring import Speed

GIGA = 1e9


def speed_command(
    device: Device = None,
    work: Annotated[str, typer.Option(help="What is done: cifar10 or tiny-imagenet.")] = "cifar10",
    model: Annotated[
        str | None, typer.Option(help="Another network: resnet18, timm:NAME, import:package.module:callable.")
    ] = None,
    precision: Annotated[
        list[str] | None,
        typer.Option(help="float32, tf32 or bf16; repeatable.", show_default="all that the device has"),
    ] = None,
    clients: Annotated[int | None, typer.Option(min=10, help="Clients, of whom 10 take part in a round.")] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds per timestep.")] = None,
    timesteps: Annotated[int, typer.Option(min=1, help="Timesteps that are timed together, on a GPU.")] = 1,
    federations: Annotated[int, typer.Option(min=1, help="Seeds that share a batch on a GPU; times are for one.")] = 1,
    repeats: Annotated[int, typer.Option(min=1, help="Turns, of which the best counts.")] = 2,
    compiled: Annotated[
        bool, typer.Option("--compile", help="Also time `torch.compile`, which compiles for minutes first.")
    ] = False,
    flower: Annotated[
        bool, typer.Option("--flower", help="Also time the same work in Flower's simulation (extra flower).")
    ] = False,
    profile: Annotated[bool, typer.Option("--profile", help="Say where the time of our fastest goes.")] = False,
    json_: Json = False,
) -> None:
    """Time the simulator against a plain loop and `torch.func`, on the same work. No dataset is needed."""
    with loading():
        from fedade.cli.progress import progress_bars
        from fedade.models.traced import fused_and_other_layers, why_as_it_is
        from fedade.products.run_folder import check_device
        from fedade.speed.measuring import measure
        from fedade.speed.workload import WORKS
    if work not in WORKS:
        raise FedadeError(f"--work {work}: unknown; choose from {', '.join(WORKS)}")
    usual, device = WORKS[work], device or "cpu"
    chosen = replace(
        usual,
        model=model or usual.model,
        timesteps=timesteps,
        rounds=rounds or usual.rounds,
        clients=clients or usual.clients,
        federations=federations,
    )
    body = chosen.network().body
    fused, others = fused_and_other_layers(body)
    why = getattr(body, "not_traced", "")
    precisions = _precisions(precision, check_device(device))
    with progress_bars(quiet=json_) as report:
        found = measure(chosen, device, precisions, repeats, profile, report, compiled, flower)
    if json_:
        layers = {"fused": fused, "as they are": others, "not traced": why}
        typer.echo(json.dumps(found.as_plain() | {"layers": layers}))
        return
    _print(found)
    reasons: dict[str, list[str]] = {}
    for name in others:
        reasons.setdefault(why_as_it_is(body, name), []).append(name)
    as_they_are = "".join(f"; as they are: {', '.join(names)} ({reason})" for reason, names in reasons.items())
    Console().print(f"layers that run fused: {len(fused)} of {len(fused) + len(others)}{as_they_are}", highlight=False)
    if why:
        Console().print(f"nothing runs fused: {why}", highlight=False, markup=False)


def _precisions(asked: list[str] | None, device: str) -> "tuple[Precision, ...]":
    from fedade.core.precision import Precision

    possible: tuple[Precision, ...] = get_args(Precision) if device.startswith("cuda") else ("float32",)
    for name in asked or ():
        if name not in possible:
            raise FedadeError(f"--precision {name}: not on {device}; choose from {', '.join(possible)}")
    return tuple(name for name in possible if name in asked) if asked else possible


def _print(found: "Speed") -> None:
    console, work = Console(), found.work
    console.print(
        f"{work.model}, {work.clients} clients, {work.participants} participants, {work.rounds} rounds a timestep, "
        f"{work.samples} samples; {found.provenance['device']}, {found.provenance['threads']} CPU threads",
        highlight=False,
    )
    table = terminal_table(["", "numbers"], ["timestep", "round", "faster", "GFLOP/s", "of", "GB/s", "of", "GB"])
    for one in found.timings:
        table.add_row(
            one.name,
            one.precision,
            f"{one.seconds_timestep:.3f} s",
            "" if one.seconds_round is None else f"{one.seconds_round:.3f} s",
            f"{one.speedup:.2f}x",
            f"{one.flops_per_second / GIGA:.0f}",
            f"{one.flops_share:.0%}",
            f"{one.bytes_per_second / GIGA:.1f}",
            f"{one.bytes_share:.0%}",
            f"{one.peak_memory / GIGA:.1f}",
        )
    console.print(table)
    peaks = ", ".join(f"{name} {value / GIGA:.0f} G/s" for name, value in found.ceilings.items())
    console.print(f"measured ceilings: {peaks}; faster for a {found.unit}", highlight=False)
    for share in found.profile:
        console.print(
            f"{share.share:7.1%} {share.milliseconds:10.1f} ms {share.calls:7d} x  {share.operation}", highlight=False
        )
