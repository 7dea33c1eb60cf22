"""Updates are looked at before they touch the average."""

import math

import torch

from fedade.core.errors import FedadeError
from fedade.flower.wire import Answer, Named, TurnOutcome


def check_update(answer: Answer, form: Named, shared: Named, max_update: float) -> None:
    """Refuse an update that is not what was asked for; the error says what is wrong with it.

    Names, shapes, types, finite values, and how far it lies from the shared layers that were sent, in norms of these.
    What the method sends beside them is measured by its own norm; where nothing is shared, all is held against `form`,
    which a client that has just begun would send.
    """
    if answer.outcome is not TurnOutcome.done:
        return
    if answer.samples < 1:
        raise FedadeError("it counts no sample")
    uplink = answer.uplink
    if uplink.keys() != form.keys():
        odd = sorted(uplink.keys() ^ form.keys())
        raise FedadeError(f"it {'holds' if odd[0] in uplink else 'lacks'} {odd[0]}")
    for name, expected in form.items():
        found = uplink[name]
        if found.shape != expected.shape:
            raise FedadeError(f"{name} has shape {list(found.shape)}, expected {list(expected.shape)}")
        if found.dtype != expected.dtype:
            raise FedadeError(f"{name} is {found.dtype}, expected {expected.dtype}")
        if found.is_floating_point() and not found.isfinite().all():
            raise FedadeError(f"{name} holds NaN or infinite values")
    moved = _norm({name: uplink[name] - shared[name] if name in shared else uplink[name] for name in uplink})
    allowed = max_update * _norm(shared or form)
    if moved > allowed:
        raise FedadeError(f"it moves by {moved:.3g}, more than {allowed:.3g} (flower.max_update)")


def _norm(named: Named) -> float:
    squares = [float(torch.linalg.vector_norm(value.double())) ** 2 for value in named.values()]
    return math.sqrt(sum(squares))
