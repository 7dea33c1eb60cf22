"""Fed-ADE+: one method for label shift, covariate shift, both and none, which need not be told which it is.

Fed-ADE's idea, label-free signals that steer each client at each timestep, applied to more than a learning rate:

a. the class prior is tracked as a few regimes, whose memory is set by the shift signal (`regimes.py`);
b. normalisation statistics follow the batch, and earlier ones that agree with it, as far as neither the class prior nor
   chance explains their change (`corrected_normalisation.py`): first in the layers that tell no classes apart,
   which gives a prior that can be trusted under corrupted inputs too, then with this prior in all layers;
c. predictions are corrected by the prior;
d. ψ and φ may take gradient steps at Fed-ADE's rate, as far as statistics moved;
e. clients then share ψ, as in the paper. Statistics and regimes stay with the client.

Each can be switched off; d and e are off, because they gained nothing. A client keeps a few numbers per normalised
channel and a few class distributions beside its layers. A timestep costs two forward passes per sample, or one where
the second would be the same.
"""

from typing import Literal, NamedTuple

from pydantic import Field
from torch import Tensor

from fedade.core import tree
from fedade.core.method import Card, ClientContext, Deployment, FederatedMethod, Plan, RoundContext, Shared
from fedade.kernels import mapped
from fedade.maths.losses import entropy
from fedade.maths.priors.reweighting import apply_temperature, reweight
from fedade.methods.fed_ade_plus import corrected_normalisation as normalising
from fedade.methods.fed_ade_plus import regimes
from fedade.methods.fed_ade_plus.class_moments import (
    FEATURES,
    measure,
    plain_layers,
    reference_moments,
    sample_spreads,
)
from fedade.methods.fed_ade_plus.conditions import Report
from fedade.methods.fed_ade_plus.corrected_normalisation import Corrected, corrected_pass, uncorrected_bias
from fedade.methods.fed_ade_plus.layer_statistics import Residuals
from fedade.methods.fed_ade_plus.own_statistics import as_usual
from fedade.methods.fed_ade_plus.regimes import Reading, Regimes
from fedade.parts.composition import own_model, trainable_shared
from fedade.parts.measures import Measure, Remembered, choose_measure
from fedade.parts.objectives import OBJECTIVES, ObjectiveName
from fedade.parts.optimisers import Optimiser, PhaseStates
from fedade.parts.participation import joint_step, personal_step, phase_states
from fedade.parts.rates import RateBounds
from fedade.parts.training import Training

Correction = Literal["class-aware", "batch", "none"]


class FedAdePlusClient(NamedTuple):
    """What a client keeps between timesteps."""

    own: dict[str, Tensor]
    """φ, and ψ where it is not shared; nothing where no gradient step moves them."""
    statistics: dict[str, Tensor]
    residuals: Residuals
    """What earlier batches left unexplained in each layer."""
    apart: Tensor | tuple[()]
    """How many times as much as those of the reference set their samples differed."""
    regimes: Regimes
    prior: Tensor
    """Class distribution of the last batch."""
    previous: Remembered
    states: PhaseStates
    report: Report | tuple[()] = ()
    """What the server is to be told of conditions, where they are shared."""


class FedAdePlus(FederatedMethod[FedAdePlusClient, dict[str, Tensor]]):
    """Fed-ADE+; each part can be switched off."""

    track: bool = True
    """(a) Remember regimes of the class prior; else only the source prior and the batch itself are candidates."""
    num_regimes: int = Field(3, ge=1)
    """How many class distributions a client remembers."""
    forgetting: float = Field(4.0, ge=0)
    """How much of its past a regime loses per unit of the shift signal."""
    debiased: bool = False
    """Whether the signal counts only beyond the noise of finite batches, which is great with many classes."""
    correction: Correction = "class-aware"
    """(b) Which statistics normalise: the batch's without what classes explain, the batch's, or the deployed."""
    memory: float = Field(400.0, ge=0)
    """Samples of earlier batches that count at most when statistics are corrected."""
    conditions: int = Field(3, ge=1)
    """How many conditions of the inputs are remembered, such as a corruption at some severity: one that comes back is
    known at once."""
    each_sample: bool = True
    """Whether each sample has statistics of its own too, as far as those of a batch differ more than the reference
    set's: where several conditions come in one batch."""
    doubt: float = Field(2.0, ge=0)
    """How many times more than chance a layer must have changed before it is corrected at all."""
    settled: float = Field(0.03, ge=0)
    """Trust up to which the second pass is not made: the first explains the batch."""
    softening: float = Field(0.3, ge=0)
    """By how much predictions are less sure under statistics that moved, as a share of the temperature."""
    allowance: float = Field(0.25, ge=0)
    """How much better than the source prior others must explain a batch whose predictions may be biased. Errors of a
    share ε that all fall on one class speak for that class by about ε log K nats a sample, so it is a share of that,
    with ε from the predictions themselves; times the square of the trust, since biases grow faster than statistics."""
    reweighting: bool = True
    """(c) Correct predictions by the prior."""
    gradient_steps: bool = False
    """(d) Let shared and personal layers descend the objective."""
    share: bool = True
    """(e) Average ψ over the clients; else every client moves its own."""
    rate: RateBounds = RateBounds()
    objective: ObjectiveName = "posterior-entropy"
    joint_epochs: int = Field(1, ge=0)
    personal_epochs: int = Field(1, ge=0)
    batch_size: int = Field(64, ge=1)
    optimiser: Optimiser = Optimiser()

    @property
    def card(self) -> Card:
        return Card(
            summary="for any kind of shift, recommended: corrects statistics and predictions by a tracked prior",
            paper="this project, after Fed-ADE",
            reference=True,
            reweights=self.reweighting,
        )

    @property
    def has_rounds(self) -> bool:
        return self.gradient_steps

    def reads_deployed_features(self, deployment: Deployment) -> bool:
        return not self.gradient_steps and self._reads_features(deployment)

    def _reads_features(self, deployment: Deployment) -> bool:
        # Without BatchNorm it is features that are corrected, after the body made them.
        return self.correction == "none" or FEATURES in reference_moments(deployment)

    @property
    def _measure(self) -> Measure:
        return choose_measure("cosine", "cosine", self.debiased)

    def begin(self, ctx: ClientContext) -> FedAdePlusClient:
        deployment = ctx.deployment
        measure(deployment)
        own = deployment.personal if self.gradient_steps else {}
        if self.gradient_steps and not self.share:
            own = {**trainable_shared(deployment), **own}
        return FedAdePlusClient(
            own,
            self._first_statistics(deployment),
            () if self.correction == "none" else normalising.no_residuals(deployment, self.conditions),
            as_usual(sample_spreads(deployment)) if self._knows_samples else (),
            regimes.no_regimes(self.num_regimes, deployment.source_prior),
            deployment.source_prior,
            self._measure.init(deployment),
            phase_states(deployment, self.optimiser),
        )

    def _first_statistics(self, deployment: Deployment) -> dict[str, Tensor]:
        if self.correction == "none":
            return {}
        own = normalising.own_by_name(deployment, {}) if self._knows_samples else {}
        return {**normalising.deployed_statistics(deployment), **own}

    @property
    def _knows_samples(self) -> bool:
        return self.each_sample and self.correction == "class-aware"

    def begin_server(self, deployment: Deployment) -> Shared:
        return trainable_shared(deployment) if self.share and self.gradient_steps else {}

    def observe(self, ctx: ClientContext, state: FedAdePlusClient) -> tuple[FedAdePlusClient, Plan]:
        deployment, known = ctx.deployment, state.regimes
        if not self.track:
            known = regimes.no_regimes(self.num_regimes, deployment.source_prior)
        corrected, reading = self._settle(ctx, state, known)
        if not self._reads_features(deployment):
            # `predict` then needs no pass of its own.
            ctx.know_updated_features(
                {**self._model(ctx, state), **corrected.statistics},
                corrected.passed,
                normalising.settled(deployment, corrected.statistics),
            )
        current, signals = self._measure.update(
            deployment, state.previous, corrected.logits.softmax(-1), corrected.features, ctx.key
        )
        retention = (1 - self.forgetting * signals.combined).clamp(min=0)
        moved = self._learnt(ctx, state, corrected, reading)._replace(
            statistics=corrected.statistics,
            apart=corrected.apart,
            regimes=regimes.learn(known, reading, len(ctx.inputs), retention),
            prior=reading.prior,
            previous=current,
        )
        rate = corrected.trust * self.rate.rate("adaptive", signals.combined)
        plan = {
            **({"learning_rate": rate} if self.gradient_steps else {}),
            "s_unc": signals.unc,
            "s_rep": signals.rep,
            "s": signals.combined,
            "prior": reading.prior,
            "trust": corrected.trust,
            "novelty": reading.weights[-1],
        }
        return moved, plan

    def local_round(
        self, ctx: RoundContext, state: FedAdePlusClient, plan: Plan
    ) -> tuple[FedAdePlusClient, Plan, dict[str, Tensor]]:
        training = self._training(ctx, plan)
        epochs = range(self.joint_epochs)
        own, states, uplink = joint_step(training, state.own, state.states, epochs, state.statistics)
        return state._replace(own=own, states=states), plan, uplink

    def personalise(self, ctx: RoundContext, state: FedAdePlusClient, plan: Plan) -> tuple[FedAdePlusClient, Plan]:
        training = self._training(ctx, plan)
        epochs = range(self.joint_epochs, self.joint_epochs + self.personal_epochs)
        own, states = personal_step(training, state.own, state.states, epochs, state.statistics)
        return state._replace(own=own, states=states), plan

    def predict(self, ctx: ClientContext, state: FedAdePlusClient) -> Tensor:
        """p(x) ∘ q / p̄ with the client's statistics, normalised; p̄ is the deployed model's mean prediction under μ0."""
        deployment = ctx.deployment
        logits = normalising.settled_pass(
            ctx, self._model(ctx, state), state.statistics, keeps_body=not self.gradient_steps
        )
        probabilities = apply_temperature(logits, deployment.temperature).softmax(-1)
        return reweight(probabilities, state.prior, deployment.mean_prediction) if self.reweighting else probabilities

    # What those that share more than layers do otherwise

    def _model(self, ctx: ClientContext, state: FedAdePlusClient) -> dict[str, Tensor]:
        return own_model(ctx, state.own)

    def _past(self, ctx: ClientContext, state: FedAdePlusClient) -> Residuals:
        """What is known of conditions before the batch is seen."""
        return normalising.at_most(state.residuals, self.memory)

    def _learnt(
        self, ctx: ClientContext, state: FedAdePlusClient, corrected: Corrected, reading: Reading
    ) -> FedAdePlusClient:
        """The state with what a batch added to what is known of conditions."""
        return state._replace(residuals=corrected.residuals)

    # What a batch says

    def _settle(self, ctx: ClientContext, state: FedAdePlusClient, known: Regimes) -> tuple[Corrected, Reading]:
        """Two passes: the first finds a prior without trusting one, the second the statistics that go with it."""
        deployment, model, past = ctx.deployment, self._model(ctx, state), self._past(ctx, state)
        everywhere = frozenset[str]() if self.correction == "none" else frozenset(reference_moments(deployment))
        passed = ctx.deployed_features() if self.reads_deployed_features(deployment) else None

        def passing(prior: Tensor, layers: frozenset[str], doubt: float, forecast: bool = False) -> Corrected:
            return corrected_pass(
                deployment, model, ctx.inputs, prior, layers, doubt, past, passed, forecast, state.apart
            )

        if self.correction == "batch":
            corrected = passing(deployment.source_prior, everywhere, 0.0)
            return corrected, self._read(deployment, known, corrected)
        expected, plain = regimes.forecast(known, deployment.source_prior), plain_layers(deployment) & everywhere
        first = passing(expected, plain, self.doubt, forecast=True)
        reading = self._read(deployment, known, first)
        little = first.trust <= self.settled
        waits = not (mapped() or little.is_cuda)  # what is mapped or recorded cannot depend on a value
        kept = None
        if not waits or bool(little):
            kept = normalising.kept_pass(first, deployment, reading.prior, everywhere, self.doubt, past)
        if kept is not None and waits and bool(kept.trust <= self.settled):
            if passed is None:  # else no layer of the body is corrected, and it is passed once in any case
                deployment.network.count_pass(len(ctx.inputs))
            return kept, reading
        prior = reading.prior
        if kept is not None and not plain and not self._reads_features(deployment):
            # Nothing was corrected yet, and all layers say how far off the prior may be.
            bias = uncorrected_bias(deployment, first.seen, prior)
            prior = self._read(deployment, known, first._replace(trust=kept.trust), bias).prior
        corrected = passing(prior, everywhere, self.doubt)
        second = corrected, self._read(deployment, known, corrected)
        if waits or kept is None:
            return second
        chosen: tuple[Corrected, Reading] = tree.choose(little & (kept.trust <= self.settled), (kept, reading), second)
        return chosen

    def _read(self, deployment: Deployment, known: Regimes, corrected: Corrected, bias: Tensor | float = 1) -> Reading:
        temperature = deployment.temperature * (1 + self.softening * corrected.trust)
        probabilities = apply_temperature(corrected.logits, temperature).softmax(-1)
        expected_error = 1 - probabilities.amax(-1).mean()
        allowance = self.allowance * (normalising.FEATURE_BIAS if self._reads_features(deployment) else bias)
        source, mean_prediction = deployment.source_prior, deployment.mean_prediction
        biased = allowance * expected_error * entropy(source) * corrected.trust.square()
        allowed = biased + regimes.chance(deployment.held_out, deployment.num_classes)
        return regimes.read(known, probabilities, mean_prediction, source, allowed)

    def _training(self, ctx: RoundContext, plan: Plan) -> Training:
        return Training(ctx, OBJECTIVES[self.objective], plan, self.batch_size, self.optimiser)
