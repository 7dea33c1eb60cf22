"""One client without a clock: a deployed model that keeps up with the stream it is called on."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedade.adapter.choosing import choose_method, describe, described_method, refuse_undeployed
from fedade.adapter.judging import DeployedComparison, Monitor
from fedade.adapter.memory import Counts, Memory, Turn, load_memory, read_description, save_memory
from fedade.core.context import context_before_first_batch
from fedade.core.errors import FedadeError
from fedade.core.method import ClientContext, Deployment, Method, Plan, Shared, with_rounds
from fedade.core.precision import without_autocast
from fedade.core.seeds import Seeds
from fedade.core.tree import Tree
from fedade.engine.client import client_context, exchanged_alone, observed, refuse_misshapen, whole_rows
from fedade.parts.priors import deployed_probabilities

POOL = 32
FIRST_POOL = 8
"""Small batches are first learned from when this many samples have come, then whenever their number doubled."""

_MOST = 2**63
_KEPT = ("seed", "client", "rounds", "pool")


@dataclass(frozen=True)
class Status(Counts):
    """How an adapter is doing; what the method does not tell is None."""

    waiting: int = 0
    """Samples of small batches that were answered and not yet learned from."""
    prior: Tensor | None = None
    """Estimated class frequencies."""
    s: float | None = None
    s_unc: float | None = None
    s_rep: float | None = None
    """Shift signals of the last batch, in [0, 1]: both together, of predictions, of features."""
    trust: float | None = None
    """How much of the change in normalisation statistics was believed, in [0, 1]."""


class Adapter:
    """Predictions of a deployed model that adapts, without labels, to the stream it is called on.

    `method` is a registered name with its `settings`, or a method object. Called with a batch of inputs, it learns from
    them and returns class probabilities `[n, K]`, in float32 and on the model's device; `predict` does not learn.

    Batches smaller than `pool` are answered at once and learned from together, when `pool` samples have come (earlier
    in the beginning). Rows with NaN or infinite values are answered with the estimated class frequencies; nothing is
    learned from a batch that has any. The deployed model answers where predictions are not finite, which leaves the
    state as it was before the batch, and where the monitor finds them worse than the deployed model's, after which the
    method begins afresh. A method with rounds is a federation of one client, which aggregates its own updates `rounds`
    times a batch.

    `client` is the client's number where there are several: draws depend on it and on the seed, as in the simulator. No
    other random numbers are drawn. Callers in several threads learn one after the other, and `predict` waits for none.

    >>> import fedade
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    >>> adapter = fedade.Adapter(fedade.deploy(model, (torch.rand(60, 4), torch.arange(60) % 3)))
    >>> adapter(torch.rand(50, 4)).shape
    torch.Size([50, 3])
    >>> adapter.status.samples
    50
    """

    def __init__(
        self,
        deployment: Deployment,
        method: str | Method = "fed-ade-plus",
        *,
        seed: int = 0,
        client: int = 0,
        rounds: int = 1,
        pool: int = POOL,
        monitor: Monitor | None = None,
        **settings: Any,
    ) -> None:
        refuse_undeployed(deployment)
        for name, value, least in (("rounds", rounds, 1), ("pool", pool, 1), ("seed", seed, 0), ("client", client, 0)):
            if not isinstance(value, int | np.integer) or not least <= value < _MOST:
                raise FedadeError(f"{name} is {value!r}; it must be a whole number of at least {least}, below 2^63")
        if monitor is not None and not hasattr(monitor, "judge"):
            raise FedadeError(f"monitor is a {type(monitor).__name__}; pass an AccuracyMonitor, or leave it out")
        self.deployment, self.method = deployment, choose_method(method, settings)
        self.seed, self.client, self.rounds, self.pool = map(int, (seed, client, rounds, pool))
        self.monitor = DeployedComparison() if monitor is None else monitor
        self._seeds = Seeds(self.seed)
        self._first = self._beginning()
        self._memory = self._first
        self._turn = Turn()

    @torch.no_grad()
    @without_autocast()
    def __call__(self, batch: Any) -> Tensor:
        """Learn from a batch of unlabelled inputs `[n, ...]`, and answer it with class probabilities `[n, K]`."""
        with self._turn.lock:
            try:
                inputs = self._checked(batch)
            except FedadeError as error:
                self._refuse(str(error))
                raise
            whole = whole_rows(inputs)
            if not whole.all():
                answer = self._predicted(inputs, whole)
                self._refuse(f"{int((~whole).sum())} of {len(inputs)} inputs hold NaN or infinite values")
            elif len(inputs) >= self.pool:
                answer = self._learned(inputs, self._memory.waiting)
            else:
                answer = self._pooled(inputs)
            counts = self._memory.counts
            counts = replace(counts, batches=counts.batches + 1, samples=counts.samples + len(inputs))
            self._memory = replace(self._memory, counts=counts)
            return answer

    @torch.no_grad()
    @without_autocast()
    def predict(self, batch: Any) -> Tensor:
        """Class probabilities `[n, K]` of inputs, by what was learned so far; nothing is learned or counted."""
        inputs = self._checked(batch)
        return self._predicted(inputs, whole_rows(inputs))

    @property
    def status(self) -> Status:
        """How it is doing."""
        plan, counts = self._memory.plan, self._memory.counts
        told: dict[str, Any] = {name: float(plan[name]) for name in ("s", "s_unc", "s_rep", "trust") if name in plan}
        prior = plan["prior"].clone() if "prior" in plan else None  # the caller's own, to do with as they please
        return Status(**vars(counts), waiting=len(self._memory.waiting), prior=prior, **told)

    @torch.no_grad()
    def adopt(self, state: Tree, shared: Shared, plan: Plan, learned: int) -> None:
        """Predict from now on by what the same method learned elsewhere, in `learned` batches: a node of a federation.
        Callers of `predict` in other threads get answers of the old memory or of the new one, never of a mixture."""
        with self._turn.lock:
            counts = replace(self._memory.counts, learned=learned)
            self._memory = replace(self._memory, state=state, shared=dict(shared), plan=dict(plan), counts=counts)

    def reset(self) -> None:
        """Forget everything: as deployed."""
        with self._turn.lock:
            self._memory = self._first

    def save(self, path: Path | str) -> None:
        """Store all that was learned, as safetensors; the deployment is stored apart (`Deployment.save`)."""
        kept = {name: getattr(self, name) for name in _KEPT}
        save_memory(Path(path), self._memory, {**describe(self.method), **kept, "deployment": self.deployment.digest})

    @classmethod
    def load(
        cls, path: Path | str, deployment: Deployment, *, method: Method | None = None, monitor: Monitor | None = None
    ) -> "Adapter":
        """Go on from what `save` stored, with the same deployment; methods that are not registered must be given."""
        refuse_undeployed(deployment)
        said = read_description(Path(path))
        if said["deployment"] != deployment.digest:
            raise FedadeError(
                f"{path} belongs to deployment {said['deployment']}, not {deployment.digest}; load it with that one"
            )
        try:
            kept = {name: said[name] for name in _KEPT}
            adapter = cls(deployment, described_method(said, method), monitor=monitor, **kept)
        except FedadeError as error:
            raise FedadeError(f"{path}: {error}") from error
        adapter._memory = load_memory(Path(path), adapter._first, said["counts"])
        return adapter

    @torch.no_grad()
    @without_autocast()
    def _beginning(self) -> Memory:
        federated, deployment = with_rounds(self.method), self.deployment
        state = self.method.begin(context_before_first_batch(deployment))
        shared = {} if federated is None else federated.begin_server(deployment)
        return Memory(state, shared, self.monitor.begin(deployment), deployment.reference.inputs[:0])

    # One batch

    def _learned(self, inputs: Tensor, waiting: Tensor) -> Tensor:
        """Observe, exchange and predict, and keep what came of it if it can be kept; `waiting` go on waiting."""
        memory = self._memory
        number = memory.counts.learned + 1
        state, plan, ctx = observed(self.method, self._context(memory, inputs, number), memory.state, None, None)
        if (federated := with_rounds(self.method)) is not None:
            for turn in range(self.rounds):
                key = self._key("local", number, round=turn)
                state, plan, shared = exchanged_alone(federated, ctx, state, plan, key)
                ctx = replace(ctx, shared=shared, passes={})
        answer = self.method.predict(ctx, state)
        if not answer.isfinite().all():
            return self._rolled_back(ctx, replace(memory, waiting=waiting), "predictions after learning are not finite")
        watched, verdict = self.monitor.judge(ctx, memory.monitor, plan, answer, number)
        judged = {name: value for name, value in verdict._asdict().items() if name != "worse"}
        counts = replace(memory.counts, learned=number, **judged)
        if verdict.worse is not None:
            begun = replace(self._first, waiting=waiting, monitor=watched, counts=counts)
            return self._rolled_back(ctx, begun, verdict.worse)
        self._memory = Memory(state, dict(ctx.shared), watched, waiting, plan, counts)
        return answer

    def _pooled(self, inputs: Tensor) -> Tensor:
        """Answer a small batch; learn when enough of them have come, and then answer from what was learned."""
        memory = self._memory
        waiting = torch.cat([memory.waiting, inputs])
        learned_from = memory.counts.samples - len(memory.waiting)
        if len(waiting) >= min(self.pool, max(FIRST_POOL, learned_from)):
            return self._learned(waiting, waiting[:0])[-len(inputs) :]
        answer = self._predicted(inputs, whole_rows(inputs))
        self._memory = replace(memory, waiting=waiting)
        return answer

    def _predicted(self, inputs: Tensor, whole: Tensor) -> Tensor:
        memory, deployment = self._memory, self.deployment
        answer = memory.plan.get("prior", deployment.source_prior).float().expand(len(inputs), -1).clone()
        if whole.any():
            ctx = self._context(memory, inputs[whole], memory.counts.learned)
            found = self.method.predict(ctx, memory.state)
            answer[whole] = found if found.isfinite().all() else self._deployed(ctx)
        return answer

    def _deployed(self, ctx: ClientContext) -> Tensor:
        """What the deployed model answers; class frequencies where it overflows, too."""
        answer = deployed_probabilities(ctx)
        prior = self._memory.plan.get("prior", self.deployment.source_prior)
        return torch.where(answer.isfinite().all(-1, keepdim=True), answer, prior.to(answer))

    def _rolled_back(self, ctx: ClientContext, memory: Memory, reason: str) -> Tensor:
        counts = replace(memory.counts, rolled_back=memory.counts.rolled_back + 1, reason=reason)
        self._memory = replace(memory, counts=counts)
        return self._deployed(ctx)

    def _refuse(self, reason: str) -> None:
        counts = self._memory.counts
        self._memory = replace(self._memory, counts=replace(counts, refused=counts.refused + 1, reason=reason))

    def _checked(self, batch: Any) -> Tensor:
        """A batch as the model takes it, on its device; refused where its shape or type is another."""
        like = self.deployment.reference.inputs
        try:
            inputs = batch.detach() if isinstance(batch, Tensor) else torch.from_numpy(np.array(batch))
        except (TypeError, ValueError) as error:
            raise FedadeError(f"the batch cannot be read as a tensor ({error})") from error
        if inputs.is_meta or inputs.layout is not torch.strided:
            raise FedadeError("the batch is sparse or has no values (meta device); pass a dense tensor")
        refuse_misshapen(inputs, like, "the batch", "one input alone is inputs[None]")
        floats = inputs.is_floating_point(), like.is_floating_point()
        # Any float will do for another; integers must fit, and are no pixels of 0 to 1.
        if not all(floats) and (any(floats) or torch.promote_types(inputs.dtype, like.dtype) is not like.dtype):
            raise FedadeError(f"the batch is {inputs.dtype}, the held-out inputs were {like.dtype}; convert it")
        return inputs.to(like.device, like.dtype).contiguous()  # as held-out inputs lay

    def _context(self, memory: Memory, inputs: Tensor, number: int) -> ClientContext:
        return client_context(self.deployment, inputs, number, self._key("observe", number), memory.shared)

    def _key(self, purpose: str, number: int, **address: int) -> int:
        return self._seeds.number(purpose, client=self.client, timestep=number, **address)
