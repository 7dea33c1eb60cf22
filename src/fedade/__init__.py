"""fedade: adapt deployed models on many drifting clients, without labels.

The command line (`fedade run`) compares methods in a simulator. As a library, take only what you need:

* `ShiftAwareRate` sets the rate of any `torch.optim` optimiser from label-free shift signals;
* `confusion_matrix`, `estimate_prior` and `reweight` correct a classifier for shifted class frequencies;
* `fedade.maths` holds every equation of the paper as a pure function.
"""

from fedade.core.errors import FedadeError
from fedade.maths.calibration import fit_temperature
from fedade.maths.priors import confusion_matrix, estimate_prior
from fedade.maths.reweighting import reweight
from fedade.parts.shift_aware_rate import ShiftAwareRate

__version__ = "0.1.0"

__all__ = [
    "FedadeError",
    "ShiftAwareRate",
    "__version__",
    "confusion_matrix",
    "estimate_prior",
    "fit_temperature",
    "reweight",
]
