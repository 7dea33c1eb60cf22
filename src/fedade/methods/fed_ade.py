"""Fed-ADE: every client sets its own learning rate from two label-free shift signals (CVPR 2026).

Also the paper's FixLR baselines, which ignore the signals. What the authors' released code does instead is
`fed_ade_release.py`.
"""

from dataclasses import replace
from typing import Any, Literal, NamedTuple

from pydantic import Field, model_validator
from torch import Tensor

from fedade.core.method import Card, ClientContext, Deployment, FederatedMethod, Plan, RoundContext, Shared
from fedade.parts import norm_layers
from fedade.parts.composition import own_model, trainable_shared
from fedade.parts.measures import FeatureMeasure, Measure, MeasureName, Remembered, choose_measure
from fedade.parts.objectives import OBJECTIVES, ObjectiveName
from fedade.parts.optimisers import Optimiser, PhaseStates
from fedade.parts.participation import joint_step, personal_step, phase_states
from fedade.parts.priors import Estimator, batch_prior, refuse_unsafe_inverse
from fedade.parts.rates import EVEN, Pace, Paces, RateBounds, SignalRange, replayed_rate, replayed_rates
from fedade.parts.training import ReferenceDraws, Training

_SUMMARIES = {
    "adaptive": "shared body, personal head, learning rate set by two label-free shift signals",
    "mean": "Fed-ADE with the rate fixed at the mean of a Fed-ADE run: is it the size of the rate?",
    "shuffled": "Fed-ADE with a Fed-ADE run's rates in random order: is it the timing of the rate?",
}


class FedAdeClient(NamedTuple):
    """What a client keeps between timesteps: its own layers, what the measure remembers (cosine: K + d floats), and
    what its optimisers do (SGD: nothing)."""

    own: dict[str, Tensor]
    previous: Remembered
    states: PhaseStates
    replayed: Tensor | tuple[()] = ()
    """Rates of another run, where it draws from them."""


class FedAde(FederatedMethod[FedAdeClient, Shared]):
    """Algorithm 1 of the paper; the defaults are its equations."""

    pace: Pace = "adaptive"
    rate: RateBounds = RateBounds()
    """`calibrated` in place of the bounds is `constants: calibrated`."""
    signal: SignalRange = SignalRange()
    paces: Paces = EVEN
    anchor: float = Field(0.0, ge=0, allow_inf_nan=False)
    """How strongly φ is pulled back to the deployed one, which keeps few labelled data from being learnt by heart."""
    centred: bool = False
    """φ rests at the deployed head while the estimated prior is the source's, whatever few labelled data say: their
    gradient there is taken off (a control variate). It moves in the personal step alone then."""
    personal_step: Literal["participants", "all"] = "participants"
    """Who takes it: a round's participants after its broadcast, as in Algorithm 1; or all clients after a timestep's
    last one, as the paper's Sec. 3 says in words."""
    measured_rates: tuple[float, ...] = ()
    """All rates of a Fed-ADE run, for the paces `mean` and `shuffled`; without them these are `mid`."""
    use_unc: bool = True
    """False: the ablation w/o S_unc."""
    use_rep: bool = True
    """False: the ablation w/o S_rep."""
    measure: MeasureName = "cosine"
    """How far two batches are apart."""
    feature_measure: FeatureMeasure = "paired"
    """What gives S_rep: the measure's own part for features, or the paper's cosine distance."""
    debiased: bool = False
    """Signals count only beyond the noise of finite batches, estimated from two halves of each."""
    prior: Estimator = "simplex_ls"
    objective: ObjectiveName = "bbse"
    joint_epochs: int = Field(2, ge=0)
    personal_epochs: int = Field(2, ge=0)
    batch_size: int = Field(32, ge=1)
    reference_draws: ReferenceDraws = "epoch"
    """`bbse`: whether an epoch reads the whole reference set, or as many rows as the batch has, drawn by the prior."""
    personal_draws: ReferenceDraws | None = None
    """What an epoch of the personal step reads, which needs no gradients of ψ; None: as `reference_draws`."""
    optimiser: Optimiser = Optimiser()
    normalisation: norm_layers.NormalisationMode = "frozen"
    """Statistics of BatchNorm: deployed, the batch's, a mix, or a running average."""
    mix_weight: float = Field(0.1, ge=0, le=1)
    """`mix`: weight of the batch's own statistics."""
    momentum: float = Field(0.1, ge=0, le=1)
    """`ema`: weight of a new batch in the running statistics."""

    @model_validator(mode="before")
    @classmethod
    def _calibrated_rate(cls, settings: Any) -> Any:
        if isinstance(settings, dict) and settings.get("rate") == "calibrated":
            return {**{key: value for key, value in settings.items() if key != "rate"}, "constants": "calibrated"}
        return settings

    @model_validator(mode="after")
    def _centred_on_all_labelled_data(self) -> "FedAde":
        if self.centred and self.objective != "bbse":
            raise ValueError(f"centred needs the objective bbse, not {self.objective}; set centred to false")
        if self.centred and (self.personal_draws or self.reference_draws) == "prior":
            raise ValueError("centred reads all labelled data in the personal step; set personal_draws to epoch")
        return self

    @property
    def card(self) -> Card:
        return Card(
            summary=_SUMMARIES.get(self.pace, f"Fed-ADE with the rate fixed at rate.{self.pace}"),
            paper="Fed-ADE, CVPR 2026",
            reference=OBJECTIVES[self.objective].examples[0] == "reference",
            keeps_body=self._keeps_body,
        )

    @property
    def replays_rates_of(self) -> str | None:
        return "fed-ade" if self.pace in ("mean", "shuffled") else None

    @property
    def has_rounds(self) -> bool:
        """Without a step that moves ψ nothing is exchanged, and all clients tune φ by themselves."""
        return self.personal_step == "participants" or bool(self.paces.shared and self.joint_epochs)

    @property
    def reads_reference_features(self) -> bool:
        return self._keeps_body and self._needs_prior

    @property
    def everyone_personalises(self) -> bool:
        return self.personal_step == "all"

    def reads_deployed_features(self, deployment: Deployment) -> bool:
        return self._needs_prior or self._keeps_body

    def begin(self, ctx: ClientContext) -> FedAdeClient:
        """q⁰ is uniform, as the paper's prior; z⁰ comes from the reference set."""
        deployment = ctx.deployment
        refuse_unsafe_inverse(deployment, self.prior)
        if self.normalisation != "frozen":
            norm_layers.warn_without_batch_norm(
                deployment, f"fed-ade.normalisation={self.normalisation}", "here it is the same as frozen"
            )
        own = deployment.personal
        if self.normalisation == "ema":
            own |= {name: deployment.parameters[name] for name in norm_layers.statistics_names(deployment)}
        replays = self.replays_rates_of is not None and self.measured_rates
        replayed = replayed_rates(self.pace, self.measured_rates, deployment.source_prior) if replays else ()
        return FedAdeClient(own, self._measure.init(deployment), phase_states(deployment, self.optimiser), replayed)

    def begin_server(self, deployment: Deployment) -> Shared:
        """ψ̄ as deployed; normalisation statistics never travel."""
        return trainable_shared(deployment)

    def observe(self, ctx: ClientContext, state: FedAdeClient) -> tuple[FedAdeClient, Plan]:
        """Prior, summaries, signals and rate: lines 6 to 10 of Algorithm 1, once per timestep."""
        own, deployment, network = state.own, ctx.deployment, ctx.deployment.network
        if self.normalisation == "ema":
            own = norm_layers.follow_stream(deployment, own_model(ctx, own), own, ctx.inputs, self.momentum)
        model = own_model(ctx, own)
        features = self._features(ctx, model) if own is state.own else network.represent(model, ctx.inputs)
        probabilities = network.classify(model, features).softmax(-1)
        vectors = network.summarise(features)
        current, signals = self._measure.update(deployment, state.previous, probabilities, vectors, ctx.key)
        if isinstance(state.replayed, Tensor):
            rate = replayed_rate(state.replayed, ctx.key)
        else:
            rate = self.rate.rate(self.pace, self.signal.stretched(signals.combined))
        plan = {"learning_rate": rate, "s_unc": signals.unc, "s_rep": signals.rep, "s": signals.combined}
        if self._needs_prior:  # it takes a pass
            plan["prior"] = batch_prior(ctx, self.prior)
        state = state._replace(own=own, previous=current)
        return (state, plan) if self.has_rounds else self.personalise(ctx, state, plan)

    def local_round(self, ctx: RoundContext, state: FedAdeClient, plan: Plan) -> tuple[FedAdeClient, Plan, Shared]:
        """The joint step on ψ and φ (eq:local_joint_update), then ψ is sent: lines 11 and 12."""
        training, epochs = self._training(ctx, plan, self.reference_draws), range(self.joint_epochs)
        if self.paces.shared:
            if self.centred:  # drawn rows cannot be: φ waits for the personal step
                training = replace(training, paces=Paces(shared=self.paces.shared, weights=0, biases=0))
            own, states, uplink = joint_step(training, state.own, state.states, epochs)
        else:  # ψ stays, so that its gradients are not needed
            own, states = personal_step(training, state.own, state.states, epochs)
            uplink = dict(ctx.shared)
        return state._replace(own=own, states=states), plan, uplink

    def personalise(self, ctx: ClientContext, state: FedAdeClient, plan: Plan) -> tuple[FedAdeClient, Plan]:
        """The personal step on φ (eq:local_personal_update) with the broadcast ψ̄ frozen: lines 17 and 18."""
        epochs = range(self.joint_epochs, self.joint_epochs + self.personal_epochs)
        training = self._training(ctx, plan, self.personal_draws or self.reference_draws)
        own, states = personal_step(training, state.own, state.states, epochs)
        return state._replace(own=own, states=states), plan

    def predict(self, ctx: ClientContext, state: FedAdeClient) -> Tensor:
        """H({ψ̄, φ}; x)."""
        model = own_model(ctx, state.own)
        return ctx.deployment.network.classify(model, self._features(ctx, model)).softmax(-1)

    @property
    def _keeps_body(self) -> bool:
        return not self.paces.shared and self.normalisation == "frozen"

    def _features(self, ctx: ClientContext, model: dict[str, Tensor]) -> Tensor:
        if self._keeps_body:  # then the client's body is the deployed one
            return ctx.deployed_features()
        return ctx.own_features(model, norm_layers.evaluation(self.normalisation, self.mix_weight))

    @property
    def _needs_prior(self) -> bool:
        return "reference" in OBJECTIVES[self.objective].examples

    @property
    def _measure(self) -> Measure:
        measure = choose_measure(self.measure, self.feature_measure, self.debiased)
        return replace(measure, use_unc=self.use_unc, use_rep=self.use_rep)

    def _training(self, ctx: ClientContext, plan: Plan, draws: ReferenceDraws) -> Training:
        objective, passes = OBJECTIVES[self.objective], norm_layers.evaluation(self.normalisation, self.mix_weight)
        plain = Training(ctx, objective, plan, self.batch_size, self.optimiser, draws, passes)
        keeps_body = self._keeps_body
        return replace(plain, paces=self.paces, anchor=self.anchor, centred=self.centred, keeps_body=keeps_body)
