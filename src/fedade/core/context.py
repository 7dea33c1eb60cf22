"""What a method is given of one client: an argument that holds all it may know, and nothing else."""

from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from fedade.core.deployment import Deployment, Reference, ReferenceRows
from fedade.core.normalisation import FROZEN, Normalisation
from fedade.core.split import Parameters
from fedade.core.tree import Tree

Whose = Literal["deployed", "own", "updated"]
"""Whose features: the deployed body's; the client's own as it entered a call; its own as `observe` leaves it."""


class KnownPass(NamedTuple):
    """A pass that was made: what went in, to be sure of what is asked for, and what came out."""

    inputs: Tensor
    model: Parameters
    features: Tensor


Passes = dict[tuple[Whose, Normalisation], KnownPass]
"""Passes by whose features they gave, and with which statistics."""


class Truth(NamedTuple):
    """What only the engine and methods marked as oracles see of a batch."""

    labels: Tensor
    prior: Tensor
    """True class distribution that the labels were drawn from."""


@dataclass(frozen=True)
class ClientContext:
    """One client in one timestep, with one state; another state, or other inputs, need another context.

    It is never written to, but keeps the passes over its batch, so that each is made once.

    >>> import fedade
    >>> deployment = fedade.deploy(torch.nn.Linear(4, 3), (torch.rand(60, 4), torch.arange(60) % 3))
    >>> ctx = ClientContext(deployment, torch.rand(8, 4), timestep=torch.tensor(1), key=torch.tensor(5))
    >>> ctx.deployed_features().shape
    torch.Size([8, 4])
    """

    deployment: Deployment
    inputs: Tensor
    """The unlabelled batch, `[n, ...]`; empty before the first timestep."""
    timestep: Tensor
    key: Tensor
    """An addressed random number; `fedade.maths.counter` turns it into as many as a method needs."""
    shared: Parameters = field(default_factory=dict)
    """What the server broadcast last."""
    truth: Truth | None = None
    """Present for oracles only."""
    passes: Passes = field(default_factory=dict)
    own_reference: Reference | ReferenceRows | None = None
    """The client's own labelled data (x_c⁰, y_c⁰), where it has any; they never leave it."""

    @property
    def reference(self) -> Reference | ReferenceRows:
        """The labelled data that the client trains on: its own, or those that ship with the deployment."""
        return self.own_reference or self.deployment.reference

    @property
    def reference_features(self) -> Tensor:
        """What the deployed body makes of the labelled data; counted as the pass that it is on a real client."""
        own, network = self.own_reference, self.deployment.network
        if own is None:
            return self.deployment.reference_features
        if isinstance(own, ReferenceRows) and own.pool_features is not None:
            network.count_pass(len(own.rows))
            return own.pool_features[own.rows]
        return network.represent(self.deployment.parameters, own.inputs)

    @property
    def labels(self) -> Tensor:
        """True labels, `[n]`, for oracles only."""
        return self._revealed.labels

    @property
    def prior(self) -> Tensor:
        """True class distribution, `[K]`, for oracles only."""
        return self._revealed.prior

    def deployed_features(self, normalisation: Normalisation = FROZEN) -> Tensor:
        """Features of the batch under the deployed body."""
        return self._features("deployed", self.deployment.parameters, normalisation)

    def own_features(self, model: Parameters, normalisation: Normalisation = FROZEN) -> Tensor:
        """Features of the batch under the client's own model, which must be that of the state given with this context.
        Scoring before a timestep and `observe` ask for the same, which is then computed once."""
        return self._features("own", model, normalisation)

    def updated_features(self, model: Parameters, normalisation: Normalisation = FROZEN) -> Tensor:
        """Features of the batch under the model that `observe` will return; `predict` asks for them next."""
        return self._features("updated", model, normalisation)

    def know_updated_features(self, model: Parameters, features: Tensor, normalisation: Normalisation = FROZEN) -> None:
        """Keep features under the model that `observe` will return, where one of its own passes has made them."""
        if not torch.is_grad_enabled():
            self.passes["updated", normalisation] = KnownPass(self.inputs, model, features)

    def after_observing(self) -> "ClientContext":
        """The same context for the state that `observe` returned: the updated model's passes are now its own."""
        renamed: dict[Whose, Whose] = {"deployed": "deployed", "updated": "own"}
        kept = {(renamed[whose], how): known for (whose, how), known in self.passes.items() if whose in renamed}
        return replace(self, passes=kept)

    @property
    def _revealed(self) -> Truth:
        if self.truth is None:
            raise ValueError("labels and true priors are for methods whose card says oracle")
        return self.truth

    def _features(self, whose: Whose, model: Parameters, normalisation: Normalisation) -> Tensor:
        network, known = self.deployment.network, self.passes.get((whose, normalisation))
        if known is None or torch.is_grad_enabled():
            features = network.represent(model, self.inputs, normalisation)
            if not torch.is_grad_enabled():  # training passes are not kept: each has a graph behind it
                self.passes[whose, normalisation] = KnownPass(self.inputs, model, features)
            return features
        if known.inputs is not self.inputs or any(known.model[name] is not value for name, value in model.items()):
            raise ValueError("this context knows a pass of another state or batch; make a new one for each")
        network.count_pass(len(self.inputs))
        return known.features


@dataclass(frozen=True)
class RoundContext(ClientContext):
    """A participant in a round; its key is the round's own.

    >>> import fedade
    >>> deployment = fedade.deploy(torch.nn.Linear(4, 3), (torch.rand(60, 4), torch.arange(60) % 3))
    >>> told = {"temperature": torch.tensor(2.0)}
    >>> ctx = RoundContext(deployment, torch.rand(8, 4), torch.tensor(1), torch.tensor(5), downlink=told)
    >>> ctx.downlink["temperature"]
    tensor(2.)
    """

    downlink: Tree = ()
    """What the server told this participant alone; empty before `personalise`."""


def context_before_first_batch(deployment: Deployment) -> ClientContext:
    """What a client knows before the first timestep: the deployment."""
    zero = torch.zeros((), dtype=torch.int64, device=deployment.source_prior.device)
    return ClientContext(deployment, deployment.reference.inputs[:0], zero, zero)
