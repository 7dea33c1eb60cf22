"""What the text benchmark takes, as one JSON object.

    python speed/text.py --model hf:FOLDER_OR_FILE                                       # real weights
    python speed/text.py --shape llama-3.2-3b --device cuda --precision bf16             # random weights, dry run

The work of a timestep: 5 clients with 16 texts of 48 tokens each, 5 rounds, a joint and a personal epoch of 4 steps on
4 reference texts, AdamW. Random tokens cost what real ones do.
"""

import argparse
import gc
import json
import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
import transformers
from torch import Tensor
from torch.func import grad
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

from fedade.client_map import Vectorised, loop, side_by_side
from fedade.core import tree
from fedade.core.deployment import Deployment, Reference
from fedade.core.network import Network
from fedade.core.precision import set_multiplication
from fedade.core.scenario import Scenario
from fedade.core.seeds import Seeds
from fedade.core.split import Split
from fedade.engine.attendance import Rounds
from fedade.engine.clock import Clock
from fedade.engine.execution import Captured, Direct, Running
from fedade.engine.steps import Maps, Steps
from fedade.methods.fed_ade import FedAde
from fedade.models.text import build_text
from fedade.models.text.building import Adapters, text_network
from fedade.speed.workload import RandomStreams

CLIENTS, SAMPLES, BATCH, ROUNDS, CLASSES, REFERENCE, POOL = 5, 16, 4, 5, 41, 820, 1000

SHAPES: Mapping[str, dict[str, int]] = {
    "tiny": {
        "vocab_size": 1000, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4,
        "num_attention_heads": 4, "num_key_value_heads": 2,
    },
    "smollm2-135m": {
        "vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
        "num_attention_heads": 9, "num_key_value_heads": 3,
    },
    "llama-3.2-3b": {
        "vocab_size": 128256, "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 28,
        "num_attention_heads": 24, "num_key_value_heads": 8,
    },
}  # fmt: skip

CLOCKS: Mapping[str, Callable[[], float]] = {"wall": time.perf_counter, "processor": time.process_time}
"""On a machine that does other work, the processor's time on one thread still says something."""

METHOD = FedAde(
    rate={"low": 1e-3, "mid": 1e-3, "high": 1e-2},
    joint_epochs=1,
    personal_epochs=1,
    batch_size=BATCH,
    reference_draws="prior",
    optimiser={"name": "adamw", "clip": 1.0},
)


@dataclass
class Timed:
    """Runs the steps of a clock directly, and notes what each call takes."""

    now: Callable[[], float]
    seconds: dict[str, list[float]] = field(default_factory=dict)

    def begin(self, steps: Steps) -> Running:
        """The steps, with a watch around each."""
        running = Direct().begin(steps)

        def timed(name: str) -> Callable[..., tree.Tree]:
            def call(*arguments: tree.Tree) -> tree.Tree:
                begun = self.now()
                result = getattr(running, name)(*arguments)
                self.seconds.setdefault(name, []).append(self.now() - begun)
                return result

            return call

        return replace(running, **{name: timed(name) for name in ("score", "observe", "exchange")})

    def rehearse(self, kind: object, work: Callable[[], object]) -> None:
        """Nothing has to be prepared."""


def network_of(options: argparse.Namespace) -> Network:
    """The network that was asked for, on its device and in its precision."""
    if options.model:
        network = build_text(options.model, CLASSES)
    else:
        config = transformers.LlamaConfig(
            **SHAPES[options.shape], max_position_embeddings=8192, tie_word_embeddings=True
        )
        with torch.device(options.device):
            network = text_network(options.shape, transformers.LlamaForCausalLM(config), CLASSES, Adapters())
    return network.to(options.device).computing_in(options.precision)


def scenario_of(network: Network, tokens: int, timesteps: int, device: str) -> Scenario:
    """A deployment with adapters that matter, and streams of random texts."""
    seeds = Seeds(0)
    vocabulary, width = network.body.embedding.weight.shape
    texts = seeds.generator("texts").integers(0, vocabulary, (POOL, tokens), dtype=np.int32)
    labels = seeds.generator("labels").integers(0, CLASSES, POOL)
    rows = seeds.generator("rows").integers(0, POOL, (timesteps, CLIENTS, SAMPLES))
    uniform = torch.full((CLASSES,), 1 / CLASSES)
    deployment = Deployment(
        network=network,
        split=Split(),
        parameters={name: value.float() for name, value in network.initial_parameters().items()},
        reference=Reference(torch.from_numpy(texts[:REFERENCE]), torch.from_numpy(labels[:REFERENCE])),
        confusion=0.9 * torch.eye(CLASSES) + 0.1 * uniform,
        source_prior=uniform,
        mean_prediction=uniform,
        initial_feature=torch.ones(width) / width**0.5,
        temperature=torch.ones(()),
        accuracy=torch.zeros(()),
    )
    streams = RandomStreams(
        *(torch.from_numpy(array).to(device) for array in (texts, labels, rows)), CLASSES, len(rows)
    )
    return Scenario(deployment.to(device), streams)


def seconds(function: Callable[[], object], device: str, now: Callable[[], float], repeats: int = 2) -> float:
    """Of one call, the best of a few; on a GPU of a replay, because a run replays its steps."""
    function()
    if not device.startswith("cuda"):
        taken = []
        for _ in range(repeats):
            begun = now()
            function()
            taken.append(now() - begun)
        return min(taken)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        function()
    graph.replay()
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(10):
        graph.replay()
    torch.cuda.synchronize()
    return (time.perf_counter() - begun) / 10


def joint_step(scenario: Scenario) -> tuple[Callable[..., dict[str, Tensor]], dict[str, Tensor], Tensor, Tensor]:
    """The gradient of one client's loss, and what all clients give it."""
    deployment = scenario.deployment
    network, trainable = deployment.network, deployment.network.trainable()
    moving = {name: value for name, value in deployment.parameters.items() if name in trainable}

    def loss(own: dict[str, Tensor], texts: Tensor, labels: Tensor) -> Tensor:
        return cross_entropy(network.logits({**deployment.parameters, **own}, texts), labels)

    texts = deployment.reference.inputs[: CLIENTS * BATCH].unflatten(0, (CLIENTS, BATCH))
    labels = deployment.reference.labels[: CLIENTS * BATCH].unflatten(0, (CLIENTS, BATCH))
    return grad(loss), tree.repeat(moving, CLIENTS), texts, labels


def measure_joint_step(scenario: Scenario, device: str, now: Callable[[], float]) -> dict[str, float]:
    """Gradients of five clients in every way, and of one client with all their texts."""
    gradient, clients, texts, labels = joint_step(scenario)
    one = tree.take(clients, 0)

    def alone() -> object:
        return gradient(one, texts.flatten(0, 1), labels.flatten())

    ways: dict[str, Callable[[], object]] = {
        "vectorised": lambda: Vectorised()(gradient, clients, texts, labels),
        "one_client_with_all_texts": alone,
    }
    if device == "cpu":
        ways["side_by_side"] = lambda: side_by_side(gradient, clients, texts, labels)
    found = {name: seconds(function, device, now) for name, function in ways.items()}
    for name in ("vectorised", "one_client_with_all_texts"):
        with FlopCounterMode(display=False) as counter:
            ways[name]()
        found[f"{name}_gflop"] = counter.get_total_flops() / 1e9
    found["ratio"] = found["vectorised"] / found["one_client_with_all_texts"]
    return found


def measure_timesteps(scenario: Scenario, device: str, timesteps: int, now: Callable[[], float]) -> dict[str, float]:
    """Whole timesteps as a run makes them; on a CPU also their steps."""
    on_gpu = device.startswith("cuda")
    timed = Timed(now)
    maps = Maps(Vectorised(), Vectorised(), loop)
    clock = Clock(
        METHOD, scenario, Rounds(ROUNDS, 1.0), Seeds(0), maps, execution=Captured() if on_gpu else timed
    )  # fmt: skip
    taken = []
    for _ in clock.advance(clock.beginning()):
        if on_gpu:
            torch.cuda.synchronize()
        taken.append(time.perf_counter())
    steps = {f"{name}_seconds": min(values) for name, values in timed.seconds.items()}
    if on_gpu:  # two timesteps to record, the rest are replays
        return {"timestep_seconds": (taken[-1] - taken[1]) / (len(taken) - 2)}
    return steps | {"timestep_seconds": sum(map(sum, timed.seconds.values())) / timesteps}


def memory(device: str) -> float:
    """Largest use so far, in GB."""
    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated() / 1e9
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def main() -> None:
    """Print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="real weights, such as hf:FOLDER")
    parser.add_argument("--shape", choices=SHAPES, default="smollm2-135m", help="random weights of this shape")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", choices=("float32", "tf32", "bf16"), default="float32")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--timesteps", type=int, help="whole timesteps: 1 on a CPU and 8 on a GPU unless told")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="of a CPU; a GPU is timed by the wall")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    print(json.dumps(measured(options), indent=2))


def measured(options: argparse.Namespace) -> dict[str, object]:
    """All figures of one model on one device."""
    device, precision, now = options.device, options.precision, CLOCKS[options.clock]
    timesteps = options.timesteps if options.timesteps is not None else 8 if device.startswith("cuda") else 1
    begun = time.perf_counter()
    network = network_of(options)  # before products may be rounded: its layers are checked against the model's own
    set_multiplication(precision)
    found: dict[str, object] = {
        "model": options.model or options.shape,
        "device": torch.cuda.get_device_name() if device.startswith("cuda") else f"{torch.get_num_threads()} threads",
        "precision": precision,
        "tokens": options.tokens,
        "clock": options.clock,
        "load_seconds": time.perf_counter() - begun,
    }
    if device.startswith("cuda"):
        gc.collect()  # what the base was cast from
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        found["base_gb"] = torch.cuda.memory_allocated() / 1e9
    scenario = scenario_of(network, options.tokens, max(1, timesteps), device)
    deployment = scenario.deployment
    texts = deployment.reference.inputs[: CLIENTS * SAMPLES]
    with torch.no_grad():
        found["forward_80_seconds"] = seconds(lambda: network.logits(deployment.parameters, texts), device, now)
    found["joint_step"] = measure_joint_step(scenario, device, now)
    found["joint_step_gb"] = memory(device)
    if timesteps:
        found |= measure_timesteps(scenario, device, timesteps, now)
    found["peak_gb"] = memory(device)
    return found


if __name__ == "__main__":
    main()
