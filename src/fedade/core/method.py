"""The contract that every method keeps, in the simulator and on a network alike.

A method is a frozen pydantic model: its fields are its settings. Its functions are of **one** client: pure, tensors in
and tensors out. `client_map` runs them for many. State, plan, uplink and downlink are trees of tensors; the engine
never looks inside them.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, Self

from torch import Tensor
from typing_extensions import TypeVar

from fedade.core.choices import StrictSettings

# Said twice, and so exported: all that a method is written with comes from here.
from fedade.core.context import ClientContext as ClientContext
from fedade.core.context import RoundContext as RoundContext
from fedade.core.deployment import Deployment as Deployment
from fedade.core.split import average
from fedade.core.tree import Tree

State = TypeVar("State", default=Any)
Uplink = TypeVar("Uplink", default=Any)
Plan = dict[str, Tensor]
"""What a client decided for a timestep: rate, prior, signals. Lives until the timestep ends; scalars and `prior` become
columns of the trace."""
Shared = dict[str, Tensor]
"""What the server broadcasts, and what clients send where that is its average."""


@dataclass(frozen=True)
class Card:
    """What a method is and what it needs, as `fedade list methods` shows it.

    >>> Card(summary="no adaptation", paper="none", keeps_body=True).oracle
    False
    """

    summary: str
    paper: str
    oracle: bool = False
    """Sees labels or true priors; never ranked."""
    reference: bool = False
    """Uses the labelled reference set."""
    reweights: bool = False
    """Predictions are the network's, corrected by the `prior` of its plan."""
    keeps_body: bool = False
    """Never moves the deployed body, nor its statistics: what that makes of an input is the same at all times."""
    reads_deployed: bool = False
    """Asks for the deployed body's features of a batch, also where it moves a body of its own."""


class Method(StrictSettings, ABC, Generic[State]):
    """What a client does on its own: all there is to a local method. Its fields are its settings.

    >>> class Tempered(Method[tuple[()]]):
    ...     about = Card(summary="the deployed model, less sure of itself", paper="none", keeps_body=True)
    ...     temperature: float = 2.0
    ...
    ...     def begin(self, ctx):
    ...         return ()
    ...
    ...     def observe(self, ctx, state):
    ...         return state, {}
    ...
    ...     def predict(self, ctx, state):
    ...         logits = ctx.deployment.network.classify(ctx.deployment.parameters, ctx.deployed_features())
    ...         return (logits / self.temperature).softmax(-1)
    >>> Tempered(temperature=3).temperature
    3.0
    """

    about: ClassVar[Card]
    """What the method is and needs."""

    constants: Literal["set", "calibrated"] = "set"
    """Whether the method's free constants are those in its settings, or are found for the deployed model on simulated
    drift (`fedade tune`)."""

    @property
    def card(self) -> Card:
        """What the method is and needs as it is configured."""
        return self.about

    @property
    def has_rounds(self) -> bool:
        """Whether clients, as this method is configured, exchange anything with a server."""
        return False

    @property
    def replays_rates_of(self) -> str | None:
        """The method whose measured learning rates it wants as `measured_rates`, if any."""
        return None

    def reads_deployed_features(self, deployment: Deployment) -> bool:
        """Whether `observe`, or `predict` around it, asks for the deployed body's features of a batch. Streams that
        know them are then asked. Without it nothing changes but the time."""
        return self.card.keeps_body or self.card.reads_deployed

    @property
    def reads_reference_features(self) -> bool:
        """Whether clients ask for the deployed body's features of their labelled data, which are then made once."""
        return False

    @property
    def rates(self) -> dict[str, float]:
        """The numbers of its setting `rate` or `learning_rate`, where it has one."""
        settings = dict(self)
        found = dict(settings["rate"]) if isinstance(settings.get("rate"), StrictSettings) else settings
        return {name: found[name] for name in ("low", "mid", "high", "learning_rate") if found.get(name) is not None}

    def at_rates(self, rates: Mapping[str, float | Tensor]) -> Self:
        """The same method at other rates: where these are tensors, it is for methods that are run and not stored."""
        if "learning_rate" in rates:
            return self.model_copy(update=rates)
        bounds: StrictSettings = dict(self)["rate"]
        return self.model_copy(update={"rate": bounds.model_copy(update=rates)})

    @abstractmethod
    def begin(self, ctx: ClientContext) -> State:
        """State of one client before the first timestep; there is no batch yet."""

    @abstractmethod
    def observe(self, ctx: ClientContext, state: State) -> tuple[State, Plan]:
        """Once per timestep, every client: the new state, and the plan for this timestep."""

    @abstractmethod
    def predict(self, ctx: ClientContext, state: State) -> Tensor:
        """Class probabilities `[n, K]` of the batch."""


class FederatedMethod(Method[State], Generic[State, Uplink]):
    """A method with rounds, in which participants exchange something with the server.

    >>> class MeanPrior(FederatedMethod):
    ...     about = Card(summary="predicts the mean of the clients' priors", paper="none")
    ...
    ...     def begin(self, ctx):
    ...         return ()
    ...
    ...     def begin_server(self, deployment):
    ...         return {"prior": deployment.source_prior}
    ...
    ...     def observe(self, ctx, state):
    ...         return state, {}
    ...
    ...     def local_round(self, ctx, state, plan):
    ...         return state, plan, dict(ctx.shared)
    ...
    ...     def predict(self, ctx, state):
    ...         return ctx.shared["prior"].expand(len(ctx.inputs), -1)
    >>> MeanPrior().has_rounds
    True
    """

    @property
    def has_rounds(self) -> bool:
        return True

    @property
    def keeps_participants(self) -> bool:
        """Whether round r selects the same clients at every timestep, as the released code does."""
        return False

    @property
    def everyone_personalises(self) -> bool:
        """Whether all clients take the personal step, once after a timestep's last broadcast, instead of each round's
        participants after theirs."""
        return False

    def begin_server(self, deployment: Deployment) -> Shared:
        """What the server has broadcast at t = 0: by default nothing."""
        return {}

    @abstractmethod
    def local_round(self, ctx: RoundContext, state: State, plan: Plan) -> tuple[State, Plan, Uplink]:
        """A participant's work before the exchange: new state, plan, and the uplink it sends. All randomness comes from
        the key, which is its own for every client, timestep and round."""

    def aggregate(
        self, deployment: Deployment, shared: Shared, uplinks: Uplink, weights: Tensor
    ) -> tuple[Shared, Tree]:
        """The server's work: what it now broadcasts to all, and what it tells each participant (nothing, by default).
        Uplinks are stacked over the participants. By default their weighted mean is broadcast (eq:aggregate)."""
        if not isinstance(uplinks, dict):
            raise TypeError(f"{type(self).__name__} sends more than named tensors, and must say how to aggregate them")
        return average(uplinks, weights), ()

    def personalise(self, ctx: RoundContext, state: State, plan: Plan) -> tuple[State, Plan]:
        """A participant's work after the broadcast, with the key of the round: new state and plan."""
        return state, plan


def with_rounds(method: Method) -> FederatedMethod | None:
    """The method, if it has rounds as it is configured."""
    return method if isinstance(method, FederatedMethod) and method.has_rounds else None
