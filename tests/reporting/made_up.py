"""Made-up traces with the columns and the statistics of real ones."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from fedade.core import trace
from fedade.core.seeds import Seeds
from fedade.reporting.page import Page, render
from fedade.reporting.page.scenes import PackedScenes, Recording, Scene, pack
from fedade.reporting.results import result, rows, run_tables

PAPER = (
    "source", "fth", "atlas", "uda", "fed-poe", "fix-lr-low", "fix-lr-mid", "fix-lr-high", "fed-ade", "oracle-prior",
)  # fmt: skip
WITH_RATES = ("fix-lr-low", "fix-lr-mid", "fix-lr-high", "fed-ade", "fed-poe", "atlas", "uda")
WITH_SIGNALS = ("fix-lr-low", "fix-lr-mid", "fix-lr-high", "fed-ade")
WITH_PRIORS = (*WITH_SIGNALS, "fth", "atlas", "fed-poe", "oracle-prior")


def made_up_trace(
    method: str, seed: int, schedule: str, clients: int = 100, steps: int = 100, classes: int = 10, samples: int = 50
) -> pa.Table:
    """One track: accuracies are counts of right answers, signals are smooth with noise, priors lie on the simplex."""
    purpose = f"made-up {schedule}"
    world = Seeds(seed).generator(purpose)
    own = Seeds(seed).generator(f"{purpose} {method}")
    time = np.arange(1, steps + 1) / steps
    weight = {"lin": time, "sin": np.sin(np.pi * (time * np.sqrt(steps) % 1)), "squ": np.floor(time * 20) % 2}.get(
        schedule, np.cumsum(world.random(steps) < steps**-0.5) % 2
    )
    targets = world.dirichlet(np.full(classes, 0.1), clients)
    truth = (1 - weight[:, None, None]) / classes + weight[:, None, None] * targets
    noise = world.dirichlet(np.full(classes, 5.0), (steps, clients))
    estimate = np.clip(truth + 0.25 * (noise - 1 / classes), 0, None)
    skill = 0.55 + 0.03 * PAPER.index(method) + 0.1 * world.standard_normal(clients) - 0.1 * weight[:, None]
    after = own.binomial(samples, np.clip(skill, 0.02, 0.98)) / samples
    before = np.clip(after + own.integers(-2, 3, after.shape) / samples, 0, 1) if method != "source" else after
    shape = (steps, clients)
    columns = {
        "method": np.full(shape, method),
        "seed": np.full(shape, seed),
        "client": np.broadcast_to(np.arange(clients), shape),
        "timestep": np.broadcast_to(np.arange(1, steps + 1)[:, None], shape),
        "n": np.full(shape, samples),
        "accuracy_pre": before,
        "accuracy_post": after,
        "participated": world.random(shape) < 0.1,
        "bytes_sent": np.full(shape, 1000),
        "severity": np.zeros(shape, dtype=int),
    }
    flat = {name: values.ravel() for name, values in columns.items()}
    flat |= made_up_answers(after, samples, classes, own)
    flat["true_prior"] = truth.reshape(-1, classes).astype(np.float32)
    signal = np.clip(0.3 + 0.4 * weight[:, None] + 0.1 * own.standard_normal(shape), 0, 1).astype(np.float32).ravel()
    if method in WITH_RATES:
        flat["learning_rate"] = 5e-6 + 9.5e-5 * signal if method == "fed-ade" else np.full(signal.shape, 5e-5)
    if method in WITH_SIGNALS:
        other = np.clip(signal + 0.1 * own.standard_normal(signal.shape), 0, 1)
        flat |= {"s_unc": signal, "s_rep": other, "s": (signal + other) / 2}
    if method in WITH_PRIORS:
        flat["prior"] = (estimate / estimate.sum(-1, keepdims=True)).reshape(-1, classes).astype(np.float32)
    return trace.to_table(flat)


def made_up_answers(
    accuracy: np.ndarray, samples: int, classes: int, draws: np.random.Generator
) -> dict[str, np.ndarray]:
    """Columns of the answers' quality that agree with one another: every sample is in one bin and one class."""
    hits = np.rint(accuracy.ravel() * samples).astype(int)
    even = np.full(classes, 1 / classes)
    class_hits, class_misses = draws.multinomial(hits, even), draws.multinomial(samples - hits, even)
    sure = np.arange(10) / 45  # most answers are sure
    bin_hits, bin_misses = draws.multinomial(hits, sure), draws.multinomial(samples - hits, sure)
    sums = (bin_hits + bin_misses) * (np.arange(10) + 0.5) / 10
    return {
        "confidence": sums.sum(1) / samples,
        "nll": 1.2 - accuracy.ravel(),
        "brier": 1 - accuracy.ravel(),
        "confidence_samples": bin_hits + bin_misses,
        "confidence_hits": bin_hits,
        "confidence_sums": sums.astype(np.float32),
        "class_samples": class_hits + class_misses,
        "class_hits": class_hits,
    }


def made_up_scenes(
    schedules: Sequence[str], methods: Sequence[str] = PAPER, seeds: Sequence[int] = (0, 1, 2), **sizes: int
) -> list[Scene]:
    """A scene for every schedule."""

    def recording(method: str, seed: int, schedule: str) -> Recording:
        return Recording(
            method, seed, method.startswith("oracle"), lambda: made_up_trace(method, seed, schedule, **sizes)
        )

    return [
        Scene(
            {"dataset": "CIFAR-10", "schedule": one}, [recording(name, seed, one) for seed in seeds for name in methods]
        )
        for one in schedules
    ]


def made_up_page(scenes: Sequence[Scene], packed: PackedScenes | None = None) -> str:
    """A whole page of such scenes."""
    tables = [
        run_tables(
            rows([result(one.read(), one.method, one.seed, one.oracle, 1.0) for one in scene.recordings]),
            ", ".join(scene.labels.values()),
        )
        for scene in scenes
    ]
    return render(
        Page(
            title="Made-up numbers",
            tables=tables[0],
            scene_tables=tables,
            scenes=packed or pack(scenes),
            config={"scenario": {"dataset": "digits", "kind": "label"}},
            command="fedade run config.yaml",
            facts={"clients": "100", "timesteps": "100"},
        )
    )
