"""fedade: adapt deployed models on many drifting clients, without labels.

The command line (`fedade run`) compares methods in a simulator. As a library, take only what you need:

* `deploy` and `Adapter` take a trained classifier and make predictions that keep up with a drifting stream;
* `simulate` compares methods on a scenario, or on a deployment and streams of yours, and tells a `Listener`;
* `drifting_streams`, `recorded_streams`, `shift_schedule`, `dirichlet_priors` and `corrupt_images` make such streams;
* `Method` and `FederatedMethod` are what methods of yours derive from;
* `ShiftAwareRate` sets the rate of any `torch.optim` optimiser from label-free shift signals;
* `confusion_matrix`, `estimate_prior` and `reweight` correct a classifier for shifted class frequencies;
* `fedade.maths` holds every equation of the paper as a pure function.
"""

import importlib
from typing import TYPE_CHECKING, Any

from fedade.core.errors import FedadeError
from fedade.core.version import __version__

if TYPE_CHECKING:
    from fedade.adapter.accuracy_monitor import AccuracyMonitor
    from fedade.adapter.adapter import Adapter
    from fedade.adapter.deploying import deploy, load_deployment
    from fedade.core.context import ClientContext, RoundContext
    from fedade.core.events import Listener
    from fedade.core.method import Card, FederatedMethod, Method
    from fedade.core.scenario import Batch, Streams
    from fedade.maths.priors.estimators import confusion_matrix, estimate_prior
    from fedade.maths.priors.reweighting import fit_temperature, reweight
    from fedade.parts.summaries import ShiftAwareRate
    from fedade.products.simulating import Results, simulate
    from fedade.scenarios.own_streams import (
        corrupt_images,
        dirichlet_priors,
        drifting_streams,
        recorded_streams,
        shift_schedule,
    )


_WHERE = {
    "AccuracyMonitor": "fedade.adapter.accuracy_monitor",
    "Adapter": "fedade.adapter.adapter",
    "Batch": "fedade.core.scenario",
    "Card": "fedade.core.method",
    "ClientContext": "fedade.core.context",
    "FederatedMethod": "fedade.core.method",
    "Listener": "fedade.core.events",
    "Method": "fedade.core.method",
    "Results": "fedade.products.simulating",
    "RoundContext": "fedade.core.context",
    "ShiftAwareRate": "fedade.parts.summaries",
    "Streams": "fedade.core.scenario",
    "confusion_matrix": "fedade.maths.priors.estimators",
    "corrupt_images": "fedade.scenarios.own_streams",
    "deploy": "fedade.adapter.deploying",
    "dirichlet_priors": "fedade.scenarios.own_streams",
    "drifting_streams": "fedade.scenarios.own_streams",
    "estimate_prior": "fedade.maths.priors.estimators",
    "fit_temperature": "fedade.maths.priors.reweighting",
    "load_deployment": "fedade.adapter.deploying",
    "recorded_streams": "fedade.scenarios.own_streams",
    "reweight": "fedade.maths.priors.reweighting",
    "shift_schedule": "fedade.scenarios.own_streams",
    "simulate": "fedade.products.simulating",
}
"""Imported when first used: PyTorch takes seconds, and a command such as `fedade --version` does without."""

__all__ = [
    "AccuracyMonitor",
    "Adapter",
    "Batch",
    "Card",
    "ClientContext",
    "FedadeError",
    "FederatedMethod",
    "Listener",
    "Method",
    "Results",
    "RoundContext",
    "ShiftAwareRate",
    "Streams",
    "__version__",
    "confusion_matrix",
    "corrupt_images",
    "deploy",
    "dirichlet_priors",
    "drifting_streams",
    "estimate_prior",
    "fit_temperature",
    "load_deployment",
    "recorded_streams",
    "reweight",
    "shift_schedule",
    "simulate",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'fedade' has no attribute {name!r}")
    return getattr(importlib.import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return __all__
