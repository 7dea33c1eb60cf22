"""Answers are looked at before they touch the average."""

from fedade.core.errors import FedadeError
from fedade.flower.bounds import norm
from fedade.flower.settings import FlowerSettings
from fedade.flower.wire import Answer, Named, TurnOutcome


def check_update(answer: Answer, asked: Named | None, shared: Named, settings: FlowerSettings) -> None:
    """Refuse an update that is not what was asked for; the error says what is wrong with it.

    Names, shapes, types, finite values, and how far it lies from the shared layers that were sent, in norms of these.
    What the method sends beside them is measured by its own norm; where nothing is shared, all is held against `asked`,
    which a client that has just begun would send.
    """
    uplink = answer.uplink
    if asked is None or answer.outcome is not TurnOutcome.done:
        if uplink:
            reason = "which was not asked for" if asked is None else f"but says {answer.outcome.value}"
            raise FedadeError(f"it holds an update, {reason}")
        return
    if answer.samples < 1:
        raise FedadeError("it counts no sample")
    if answer.samples > settings.max_samples:
        raise FedadeError(f"it counts {answer.samples} samples, more than {settings.max_samples} (flower.max_samples)")
    _check_tensors(uplink, asked)
    moved = norm(uplink[name] - shared[name] if name in shared else uplink[name] for name in uplink)
    allowed = settings.max_update * norm((shared or asked).values())
    if moved > allowed:
        raise FedadeError(f"it moves by {moved:.3g}, more than {allowed:.3g} (flower.max_update)")


def _check_tensors(uplink: Named, asked: Named) -> None:
    """Names, shapes, types and finite values."""
    if uplink.keys() != asked.keys():
        odd = sorted(uplink.keys() ^ asked.keys())
        raise FedadeError(f"it {'holds' if odd[0] in uplink else 'lacks'} {odd[0]}")
    for name, expected in asked.items():
        found = uplink[name]
        if found.shape != expected.shape:
            raise FedadeError(f"{name} has shape {list(found.shape)}, expected {list(expected.shape)}")
        if found.dtype != expected.dtype:
            raise FedadeError(f"{name} is {found.dtype}, expected {expected.dtype}")
        if found.is_floating_point() and not found.isfinite().all():
            raise FedadeError(f"{name} holds NaN or infinite values")
