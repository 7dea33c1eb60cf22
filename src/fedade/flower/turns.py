"""A client's turn: what one message makes it do, from the end of its last round to its next update."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedade.adapter.accuracy_monitor import AccuracyMonitor
from fedade.adapter.adapter import Adapter
from fedade.core import storage, tree
from fedade.core.context import ClientContext, RoundContext, Truth
from fedade.core.deployment import Deployment, Reference, ReferenceRows
from fedade.core.errors import FedadeError
from fedade.core.method import FederatedMethod, Method, Shared, with_rounds
from fedade.core.network import PassCounter
from fedade.core.tree import Tree
from fedade.engine.client import observed, refuse_misshapen, whole_rows
from fedade.engine.scoring import quality
from fedade.flower.bounds import check_tensors
from fedade.flower.settings import FlowerSettings
from fedade.flower.snapshots import BEGINNING, Opened, Snapshot, Store
from fedade.flower.streams import BadBatchError, ClientBatch, ClientStream
from fedade.flower.wire import Answer, Instruction, Named, ReportedRow, TurnOutcome, named_leaves, rehearse, tree_like

log = logging.getLogger("flwr.fedade")
AfterTurn = Callable[["Client", Snapshot], None]
"""Told of a client and what it remembers after a turn."""
Clip = Callable[[Named, Named], Named]
"""From an update and the shared layers that it started from, to the update that may be sent."""


@dataclass(frozen=True)
class Client:
    """One client: a method and its deployment, a stream, and a place to keep its state."""

    method: Method
    deployment: Deployment
    stream: ClientStream
    store: Store
    settings: FlowerSettings
    score_fresh: bool = False
    clip: Clip | None = None
    labelled: Reference | ReferenceRows | None = None
    """Its own labelled data; None: it trains on what ships with the deployment."""
    adapter: Adapter | None = None
    """Predicts by what was learned; None: nobody asks."""
    monitor: AccuracyMonitor | None = None
    """Estimates its accuracy without labels; None: nobody does."""
    beginning: Snapshot | None = None
    """What it brings into the run from earlier ones; None: it begins as deployed."""

    @torch.no_grad()
    def take_turn(self, told: Instruction, then: AfterTurn = lambda *_: None) -> Answer:
        """Finish the last round, close the last timestep, open the next, take part in the round; then remember. What
        was remembered, `then` is told."""
        found = None if told.base == BEGINNING else self.store.load(told.base)
        before = found or self.beginning or Snapshot(self.store.form)
        restarted = found is None and told.base != BEGINNING
        shared = self._shared_of(told.shared if told.version else {})
        now = self._personalised(before, shared, told.downlink)
        row, outcome = None, TurnOutcome.done
        if told.timestep != now.timestep:
            now = self._watched(self._personalised_at_end(now, shared), shared)
            row = self._closed(now, shared)
            self._publish(now, shared)
            now = replace(now, opened=None)
            if told.timestep:
                now, outcome = self._opened(now, shared, told)
        elif now.opened is None:
            outcome = TurnOutcome.no_data
        answer = Answer(outcome, row=row)
        if told.trains and now.opened is not None:
            now, uplink = self._trained(now, now.opened, shared, told.round_key)
            answer = replace(answer, samples=len(now.opened.inputs) if now.opened else 0, uplink=uplink)
        now = replace(now, shared=told.shared)
        self.store.save(told.turn, now)
        self.store.forget_before(told.keep)
        self._publish(now, shared)
        then(self, now)
        return replace(answer, restarted=restarted, nonce=told.nonce)

    def resume(self, turn: int, then: AfterTurn) -> bool:
        """Predict by the state after a turn, as if it had just ended; False where it is gone."""
        if (found := self.store.load(turn)) is None:
            return False
        self._publish(found, self._shared_of(found.shared))
        then(self, found)
        return True

    def _publish(self, now: Snapshot, shared: Shared) -> None:
        """Answer from now on by this state; where the stream wants its batches answered, first the open one."""
        if self.adapter is None:
            return
        self.adapter.adopt(now.client, shared, {} if now.opened is None else now.opened.plan, now.timestep)
        if now.opened is not None and (place := self.stream.answers) is not None:
            try:
                answered = self.adapter.predict(now.opened.inputs).numpy()
                storage.write_array(place / f"{Path(now.cursor).stem}.npy", answered)
            except FedadeError as error:  # who reads predictions must not stop who learns
                log.error("predictions of %s are not written: %s", now.cursor, error)

    def _shared_of(self, sent: Named) -> Shared:
        """The shared layers that a server sent; none: those deployed."""
        method = with_rounds(self.method)
        if method is None:
            return {}
        form = method.begin_server(self.deployment)
        if not sent:
            return form
        try:
            check_tensors(sent, named_leaves(form))
        except FedadeError as error:  # they would be in the client's state from now on
            raise FedadeError(f"the server's layers: {error}; is it the right server?") from error
        return dict(tree_like(form, sent))

    def _personalised(self, now: Snapshot, shared: Shared, downlink: Named) -> Snapshot:
        """The personal step of the last round, on the layers that came of it."""
        method, key, now = with_rounds(self.method), now.round_key, replace(now, round_key=None)
        if key is None or now.opened is None or method is None or method.everyone_personalises:
            return now
        form = rehearse(method, self.deployment).downlink if downlink else ()
        return self._after_personal_step(method, now, now.opened, key, shared, tree_like(form, downlink))

    def _personalised_at_end(self, now: Snapshot, shared: Shared) -> Snapshot:
        """The personal step after a timestep's last broadcast, of methods in which all clients take it."""
        method, opened = with_rounds(self.method), now.opened
        if opened is None or method is None or not method.everyone_personalises:
            return now
        return self._after_personal_step(method, now, opened, opened.observe_key, shared)

    def _after_personal_step(
        self, method: FederatedMethod, now: Snapshot, opened: Opened, key: int, shared: Shared, downlink: Tree = ()
    ) -> Snapshot:
        counter = PassCounter()
        ctx = self._in_round(opened, key, shared, counter, downlink)
        client, plan = method.personalise(ctx, now.client, opened.plan)
        return replace(now, client=client, opened=replace(opened, plan=plan, passes=opened.passes + counter.passes))

    def _watched(self, now: Snapshot, shared: Shared) -> Snapshot:
        """The accuracy as the monitor estimates it, of the timestep that ends and those before."""
        if self.monitor is None or (opened := now.opened) is None:
            return now
        ctx, before = self._scoring(opened, shared), now.watched or self.monitor.begin(self.deployment)
        probabilities = self.method.predict(ctx, now.client)
        watched, verdict = self.monitor.judge(ctx, before, opened.plan, probabilities, opened.timestep)
        estimate = {name: value for name, value in verdict._asdict().items() if name != "worse" and value is not None}
        return replace(now, watched=watched, estimate=estimate)

    def _closed(self, now: Snapshot, shared: Shared) -> ReportedRow | None:
        """What may be told of the timestep that ends."""
        opened = now.opened
        if opened is None:
            return None
        measures: dict[str, float | list[float]] = {
            "state_bytes": float(tree.num_bytes(now.client)),
            "passes": opened.passes,
            **{name: _plain(value) for name, value in opened.plan.items()},
            **_told_of(now.estimate),
        }
        if (waiting := self.stream.waiting(now.cursor)) is not None:
            measures["waiting"] = float(waiting)
        if opened.hidden is not None and opened.accuracy_pre is not None:
            labels, answers = opened.hidden.labels, self._answers(self._scoring(opened, shared), now.client)
            measures |= {
                "accuracy_pre": opened.accuracy_pre,
                "accuracy_post": _accuracy(answers, labels),
                "severity": _plain(opened.hidden.severity),
                "true_prior": _plain(opened.hidden.prior),
                **{name: _plain(value) for name, value in quality(answers, labels)._asdict().items()},
            }
        if self.score_fresh and (drawn := self.stream.fresh(opened.timestep)) and drawn.hidden:
            fresh = self._scoring(replace(opened, inputs=drawn.inputs), shared)
            measures["accuracy_fresh"] = _accuracy(self._answers(fresh, now.client), drawn.hidden.labels)
        agreed = {name: value for name, value in measures.items() if self.settings.shares(name)}
        return ReportedRow(opened.timestep, len(opened.inputs), agreed)

    def _opened(self, now: Snapshot, shared: Shared, told: Instruction) -> tuple[Snapshot, TurnOutcome]:
        """A new timestep: take a batch, if there is one, score before adapting, and observe. A bad batch is set aside
        with its reason. What is wrong with the stream itself fails the turn."""
        now = replace(now, timestep=told.timestep)
        try:
            batch = self.stream.take(told.timestep, now.cursor)
            if batch is None:
                return now, TurnOutcome.no_data
            self._refuse_broken(batch)
        except BadBatchError as error:
            log.error("a bad batch is set aside: %s", error)
            self.store.quarantine(error.cursor, str(error))
            return replace(now, cursor=error.cursor), TurnOutcome.bad_batch
        opened = Opened(told.timestep, batch.inputs, batch.hidden, told.observe_key, {}, None, 0.0)
        scoring, counter = self._scoring(opened, shared), PassCounter()
        scored = None if batch.hidden is None else _accuracy(self._answers(scoring, now.client), batch.hidden.labels)
        client, plan, _ = observed(self.method, scoring, now.client, self._truth(opened), counter)
        opened = replace(opened, plan=plan, accuracy_pre=scored, passes=float(counter.passes))
        return replace(now, client=client, cursor=batch.cursor, opened=opened), TurnOutcome.done

    def _trained(self, now: Snapshot, opened: Opened, shared: Shared, round_key: int) -> tuple[Snapshot, Named]:
        method, counter = with_rounds(self.method), PassCounter()
        if method is None:
            raise FedadeError("the server asks for a round of a method that has none; give both the same app")
        ctx = self._in_round(opened, round_key, shared, counter)
        client, plan, uplink = method.local_round(ctx, now.client, opened.plan)
        sent = named_leaves(uplink)
        if self.clip is not None:
            sent = self.clip(sent, named_leaves(shared))
        opened = replace(opened, plan=plan, passes=opened.passes + counter.passes)
        return replace(now, client=client, opened=opened, round_key=round_key), sent

    def _scoring(self, opened: Opened, shared: Shared) -> ClientContext:
        """The client as it is scored: without labels, and its passes are not counted."""
        time, key = torch.tensor(opened.timestep), torch.tensor(opened.observe_key)
        return ClientContext(self.deployment, opened.inputs, time, key, shared, own_reference=self.labelled)

    def _in_round(
        self, opened: Opened, round_key: int, shared: Shared, counter: PassCounter, downlink: Tree = ()
    ) -> RoundContext:
        known = (torch.tensor(opened.timestep), torch.tensor(round_key), shared, self._truth(opened))
        counting, own = self.deployment.counting(counter), self.labelled
        return RoundContext(counting, opened.inputs, *known, own_reference=own, downlink=downlink)

    def _truth(self, opened: Opened) -> Truth | None:
        if not self.method.card.oracle:
            return None
        if opened.hidden is None:
            raise ValueError("an oracle needs labels and priors")
        return Truth(*opened.hidden[:2])

    def _answers(self, ctx: ClientContext, client: Tree) -> Tensor:
        """The probabilities that the client answers with."""
        probabilities: Tensor = self.method.predict(ctx, client)
        if not probabilities.isfinite().all():
            raise FedadeError(
                "predictions are not finite; scale inputs as the held-out ones are, or lower the method's learning rate"
            )
        return probabilities

    def _refuse_broken(self, batch: ClientBatch) -> None:
        named, most = f"batch {batch.cursor}", self.settings.max_samples
        try:
            refuse_misshapen(batch.inputs, self.deployment.reference.inputs, named, "mend the stream")
        except FedadeError as error:
            raise BadBatchError(str(error), batch.cursor) from error
        if len(batch.inputs) > most:
            raise BadBatchError(
                f"{named} has {len(batch.inputs)} samples, more than flower.max_samples, {most}", batch.cursor
            )
        if not whole_rows(batch.inputs).all():
            raise BadBatchError(f"{named} holds NaN or infinite values; clean the stream's data", batch.cursor)


def _accuracy(probabilities: Tensor, labels: Tensor) -> float:
    return float((probabilities.argmax(-1) == labels).double().mean())


def _told_of(estimate: dict[str, Any]) -> dict[str, float]:
    if "estimated_accuracy" not in estimate:
        return {}
    (low, high), accuracy = estimate["accuracy_interval"], estimate["estimated_accuracy"]
    told = {"estimated_accuracy": accuracy, "estimated_low": low, "estimated_high": high}
    return told | {"alarm": float(estimate.get("alarm", False))}


def _plain(value: Tensor) -> float | list[float]:
    """A number or a list of numbers, as Flower's metrics can carry them."""
    flat: list[float] = value.double().flatten().tolist()
    return flat if value.ndim else flat[0]
