"""What a scenario can be told: the dataset, the shift, the model and how it was trained."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from fedade.core.choices import StrictSettings, hint
from fedade.data.dataset import TextInput
from fedade.maths.schedules import SCHEDULES

Kind = Literal["label", "covariate", "both", "none"]
StreamName = Literal["drift", "continual", "returning", "correlated", "mixed", "once", "own-pace", "late", "markov"]
PixelScale = Literal["unit", "bytes"]
SourceDistribution = Literal["uniform", "gaussian", "exponential"]


def _known_schedule(name: str) -> str:
    if name not in SCHEDULES:
        raise ValueError(f"there is no such schedule{hint(name, SCHEDULES)}")
    return name


ScheduleName = Annotated[str, AfterValidator(_known_schedule)]


class PretrainingSettings(StrictSettings):
    """The recipe of the deployed model: SGD with Nesterov momentum, or AdamW, and a one-cycle rate."""

    epochs: int = Field(60, ge=1)
    batch_size: int = Field(64, ge=1)
    learning_rate: float = Field(0.1, gt=0)
    weight_decay: float = Field(5e-4, ge=0)
    augment: bool = False
    """Random horizontal flips and shifts of up to an eighth of the image."""
    seed: int = Field(0, ge=0)
    """Seed of the weights and of the order of the examples; not the seed of a run."""
    optimiser: Literal["sgd", "adamw"] = "sgd"
    clip: float | None = Field(None, gt=0)
    """Largest norm of a step's gradient; None: gradients are taken as they are."""


class TextSettings(StrictSettings):
    """How texts are made and read, and which adapters a language model gets."""

    input: TextInput = "evidence"
    """What a text is: a sentence that states the fact, a paraphrase, the bare pair, or the relation's template."""
    max_tokens: int = Field(40, ge=1)
    """Longer texts lose the words farthest from subject and object."""
    rank: int = Field(8, ge=1)
    alpha: float = Field(16.0, gt=0)
    """Scale of the adapters, divided by their rank."""
    targets: tuple[str, ...] = Field(("q_proj", "k_proj", "v_proj"), min_length=1)
    """Modules of every layer that get an adapter (LoRA)."""
    first_layer: int = Field(0, ge=0)
    """The lowest layer with adapters."""
    shared_layers: int | None = Field(None, ge=1)
    """Layers below the split between shared and personal adapters; None: the lower half."""


class ScenarioSettings(StrictSettings):
    """A deployment and the streams that follow it."""

    dataset: str = "digits"
    data_dir: Path | None = None
    kind: Kind = "label"
    stream: StreamName = "drift"
    """What comes when (`scenarios/stream_laws`): the paper's drift, or a protocol of the field."""
    markov: str = Field("n1n1", pattern="^[in1][1u][in1][1u]$")
    """Where UniTTA's grid is for stream `markov`: correlation and imbalance of the classes, then of the corruptions."""
    schedule: ScheduleName = "lin"
    variant: Literal["standard", "literal", "release"] = "standard"
    """Which reading of the schedules (docs/decisions/0005-schedules.md)."""
    num_clients: int = Field(100, ge=1, le=10_000_000)
    """Up to ten million: each has a class distribution and labelled rows of its own, which are drawn before a run."""
    num_timesteps: int = Field(100, ge=1)
    samples: int = Field(30, ge=1)
    """Examples per client and timestep."""
    alpha: float = Field(0.1, gt=0)
    """Dirichlet factor of the clients' target class distributions."""
    supports: Literal["all", "disjoint"] = "all"
    """Which classes a client meets: all, or its own ones, that no other client has."""
    initial: Literal["own", "global"] = "own"
    """With disjoint supports, whether streams start from the client's own classes or from all."""
    corruptions: tuple[str, ...] = ()
    """One per client, in turn; empty: all that exist for the dataset."""
    severity: Literal["rounded", "release"] = "rounded"
    """round(5ω), so that ω = 0 is clean; or the released code's map, which is never clean."""
    model: str = "small-cnn"
    head: str | None = None
    """The name of the layer of a brought model that gives the logits; None: it is found."""
    pixels: PixelScale = "unit"
    """Whether a brought model is given images of bytes as floats from 0 to 1, or as bytes."""
    personal: tuple[str, ...] = ("head.",)
    """Names of personal parameters begin with one of these."""
    source: SourceDistribution = "uniform"
    """Class distribution of the pre-training data."""
    train_size: int | None = Field(None, ge=1)
    """Training examples; the rest of the training side is held out. None: 80 of 100 train, 20 are streamed."""
    reference: Literal["own", "common"] = "own"
    """Whose labelled data clients train on: each its own draw of the held-out side, as in the paper, or one set that
    ships to all (docs/decisions/0020-own-reference.md)."""
    reference_size: int = Field(100, ge=1)
    """Labelled examples of each client, and of the set that ships with the deployment."""
    pretraining: Annotated[
        PretrainingSettings | None, BeforeValidator(lambda written: None if written == "none" else written)
    ] = PretrainingSettings()
    """None, written `none`: the model is brought with its weights, and never trained."""
    text: TextSettings = TextSettings()
    """Settings of datasets and models that are text."""
    weights_digest: str | None = None
    """Which weights and code a brought model has. A run fills it in, and refuses others later."""
    data_digest: str | None = None
    """Which data of the user's own are streamed. A run fills it in, and refuses others later."""

    @property
    def shifts_labels(self) -> bool:
        return self.kind in ("label", "both")

    @property
    def shifts_inputs(self) -> bool:
        return self.kind in ("covariate", "both")
