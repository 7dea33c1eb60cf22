"""UniTTA: statistics that are balanced over classes and over domains, and neighbours in time (Du et al., 2024).

Three passes, no gradient. The first predicts classes; the second normalises with all classes in equal parts and finds
each sample's domain, by its own statistics in a middle layer; the third normalises each sample with its domain's
statistics, class by class. One domain is always a spare with the deployed statistics: whoever is nearest to it opens a
new one. Every pass also tries the mean of a feature and the one before it in time, and keeps the surer answer (COFA).

A client keeps room for `domains`; where none is left, the least used of the older half makes room. The weight of a
batch in a row is capped at 1, without which a variance can become negative. The released filter compares a doubly
softened answer, and hardly ever acts (`filter="released"`).

A client keeps 8 bytes per class, normalised channel and domain. A timestep costs 3 forward passes per sample, and a
prediction as many: the published one is made with the statistics of its own batch. Nothing is sent.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from fedade.core.method import Card, ClientContext, Deployment, Method, Plan
from fedade.core.normalisation import FROZEN, ByMoments, InputMoments, Normalisation, Statistics
from fedade.core.split import Parameters
from fedade.parts import running_norms
from fedade.parts.last_layers import classified, last_layer, seen_by_last_layer
from fedade.parts.norm_layers import warn_without_batch_norm

Rows = dict[str, running_norms.ClassRows]
PASSES = 3


class Domains(NamedTuple):
    """Class rows of the domains, `[D, K, C]` by layer, and which places are open."""

    rows: Rows
    counts: Tensor
    """Samples of each, `[D]`."""
    opened: Tensor
    """The order in which places were opened, `[D]`; 0 where a place is not open."""
    spare: Tensor
    """The open domain that has the deployed statistics."""


class UnittaClient(NamedTuple):
    """Class rows over all domains, those of each domain, and the last features of every pass."""

    rows: Rows
    domains: Domains
    last: Tensor
    """`[3, d]`"""
    started: Tensor


class Answered(NamedTuple):
    """Class probabilities, and the client as it is after its batch."""

    probabilities: Tensor
    client: UnittaClient


class Unitta(running_norms.BalancedRows, Method[UnittaClient]):
    """Balanced domain normalisation and correlated feature adaptation."""

    about = Card(
        summary="statistics balanced over classes and domains, no gradient; made for BatchNorm", paper="UniTTA, 2024"
    )

    domains: int = Field(8, ge=2)
    """Domains that are remembered at most."""
    neighbours: bool = True
    """COFA: whether samples come in the order of time, so that the one before says something."""
    filter: Literal["intended", "released"] = "intended"
    """Whether the surer of the balanced and the domain's answer is given, or, nearly always, the domain's."""

    def begin(self, ctx: ClientContext) -> UnittaClient:
        deployment = ctx.deployment
        warn_without_batch_norm(deployment, "unitta", "of it only the neighbours in time are left")
        rows, zeros = running_norms.deployed_rows(deployment), deployment.source_prior.new_zeros(self.domains)
        opened = torch.zeros_like(zeros, dtype=torch.int64)
        opened[0], opened[1] = 1, 2
        features = deployment.reference_features
        last = torch.zeros_like(seen_by_last_layer(deployment, deployment.parameters, features)[:1].expand(PASSES, -1))
        many = {
            layer: running_norms.ClassRows(*(value.expand(self.domains, -1, -1).clone() for value in of_layer))
            for layer, of_layer in rows.items()
        }
        domains = Domains(many, zeros, opened, opened.argmax())
        return UnittaClient(rows, domains, last, zeros[0] > 0)

    def observe(self, ctx: ClientContext, state: UnittaClient) -> tuple[UnittaClient, Plan]:
        return self._answered(ctx, state).client, {}

    def predict(self, ctx: ClientContext, state: UnittaClient) -> Tensor:
        return self._answered(ctx, state).probabilities

    def _answered(self, ctx: ClientContext, state: UnittaClient) -> Answered:
        deployment = ctx.deployment
        last: list[Tensor] = []

        def passed(model: Parameters, norms: Normalisation = FROZEN) -> Tensor:
            features = deployment.network.represent(model, ctx.inputs, norms)
            seen = seen_by_last_layer(deployment, deployment.parameters, features)
            before = torch.where(state.started, state.last[len(last)], seen[0])
            last.append(seen[-1])
            return self._surer_of_neighbours(deployment, seen, before)

        pace = self.pace(deployment.num_classes)
        labels = passed({**deployment.parameters, **running_norms.mixtures(state.rows)}).argmax(-1)
        balanced = running_norms.ClassBalanced(state.rows, pace, labels)
        watching = WatchingLayer(balanced, middle_layer(deployment))
        over_classes = passed(deployment.parameters, watching)
        place = nearest_domain(state.domains, watching)
        by_domain = DomainBalanced(state.domains.rows, labels, place, running_norms.RowPace(pace.rate, 0.0))
        within = passed(deployment.parameters, by_domain)
        domains = with_spare(
            state.domains._replace(rows=by_domain.found), place, running_norms.deployed_rows(deployment)
        )
        compared = over_classes.softmax(-1) if self.filter == "released" else over_classes
        surer = (compared.max(-1).values >= within.max(-1).values).unsqueeze(-1)
        client = UnittaClient(balanced.found, domains, torch.stack(last), torch.ones_like(state.started))
        return Answered(torch.where(surer, over_classes, within), client)

    def _surer_of_neighbours(self, deployment: Deployment, features: Tensor, before: Tensor) -> Tensor:
        """COFA: probabilities of each feature, or of its mean with the one before where that is surer."""
        head = last_layer(deployment)
        own = classified(deployment, head, features).softmax(-1)
        if not self.neighbours:
            return own
        smoothed = (features + torch.cat([before.unsqueeze(0), features[:-1]])) / 2
        together = classified(deployment, head, smoothed).softmax(-1)
        return torch.where((own.max(-1).values >= together.max(-1).values).unsqueeze(-1), own, together)


@dataclass(frozen=True)
class WatchingLayer(ByMoments):
    """A strategy, and what the samples of one layer look like."""

    of_samples = True
    inner: ByMoments
    layer: str | None
    seen: list[Statistics] = field(default_factory=list)

    def statistics(self, layer: str, inputs: Tensor | InputMoments, deployed: Statistics) -> Statistics:
        if layer == self.layer:
            self.seen.append(running_norms.sample_statistics(inputs))
        return self.inner.statistics(layer, inputs, deployed)


@dataclass(frozen=True)
class DomainBalanced(ByMoments):
    """Each sample's domain, all classes in equal parts, after its rows have followed the batch."""

    of_samples = True
    rows: Mapping[str, running_norms.ClassRows]
    labels: Tensor
    place: Tensor
    pace: running_norms.RowPace
    found: dict[str, running_norms.ClassRows] = field(default_factory=dict)

    def statistics(self, layer: str, inputs: Tensor | InputMoments, deployed: Statistics) -> Statistics:
        rows = self.rows[layer]
        num_domains, num_classes, _ = rows.means.shape
        flat = running_norms.ClassRows(*(value.flatten(0, 1) for value in rows))
        moved = running_norms.followed(flat, inputs, self.place * num_classes + self.labels, self.pace)
        self.found[layer] = running_norms.ClassRows(*(value.reshape(num_domains, num_classes, -1) for value in moved))
        mean, variance = running_norms.mixture(self.found[layer])
        return Statistics(mean[self.place], variance[self.place])


def middle_layer(deployment: Deployment) -> str | None:
    """The first layer of the middle stage, stages being told apart by their width; None where there is no layer."""
    widths: dict[int, str] = {}
    for layer, statistics in running_norms.batch_norm_layers(deployment).items():
        widths.setdefault(len(statistics.mean), layer)
    return list(widths.values())[len(widths) // 2] if widths else None


def nearest_domain(domains: Domains, watching: WatchingLayer) -> Tensor:
    """The open domain, `[n]`, whose mean and deviation in the watched layer are nearest; the first of equals."""
    places = torch.arange(len(domains.counts), device=domains.counts.device)
    if not watching.seen or watching.layer is None:
        return places[:1]
    (own,), known = watching.seen, running_norms.mixture(domains.rows[watching.layer])
    apart = (own.mean.unsqueeze(1) - known.mean).square() + (
        own.variance.sqrt().unsqueeze(1) - known.variance.sqrt()
    ).square()
    distances = torch.where(domains.opened > 0, apart.sum(-1), torch.inf)
    nearest = distances == distances.min(-1, keepdim=True).values
    return torch.where(nearest, places, len(places)).min(-1).values


def with_spare(domains: Domains, place: Tensor, deployed: Rows) -> Domains:
    """Domains after samples came to these places: if one came to the spare, there is a new one."""
    places = torch.arange(len(domains.counts), device=place.device)
    counts = domains.counts + (place.unsqueeze(-1) == places).sum(0)
    used = (place == domains.spare).any()
    is_open, order = domains.opened > 0, (domains.opened.unsqueeze(-1) > domains.opened).sum(-1)
    older = (order < len(places) // 2) & (places != domains.spare)
    unused = torch.where(is_open.all(), torch.where(older, counts, torch.inf), is_open.to(counts.dtype)).argmin()
    fresh = used & (places == unused)
    rows = {
        layer: running_norms.ClassRows(
            *(torch.where(fresh.reshape(-1, 1, 1), new, old) for new, old in zip(deployed[layer], kept, strict=True))
        )
        for layer, kept in domains.rows.items()
    }
    return Domains(
        rows,
        torch.where(fresh, 0.0, counts),
        torch.where(fresh, domains.opened.max() + 1, domains.opened),
        torch.where(used, unused, domains.spare),
    )
