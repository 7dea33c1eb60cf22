"""Which weights and data of the user's own a scenario has: part of what a result is."""

from fedade.core.errors import FedadeError
from fedade.core.identity import digest
from fedade.data.registry import is_own, load
from fedade.scenarios.own_models import weights_digest
from fedade.scenarios.settings import ScenarioSettings


def identified(settings: ScenarioSettings) -> ScenarioSettings:
    """Settings that name the user's own weights and data; where they did already, others are refused."""
    digests: dict[str, str | None] = {}
    for name, (setting, measure) in _OWN.items():
        stated, digests[name] = getattr(settings, name), measure(settings)
        if stated not in (None, digests[name]):
            raise FedadeError(
                f"scenario.{setting}: {getattr(settings, setting)} has changed ({name} {stated} before, "
                f"{digests[name]} now); bring the old one back, or start another run"
            )
    return settings.model_copy(update=digests)


def _data_digest(settings: ScenarioSettings) -> str | None:
    if not is_own(settings.dataset):
        return None
    dataset = load(settings.dataset, settings.data_dir)
    return digest(*(array for part in (dataset.train, dataset.test) for array in (part.labels, part.inputs[:])))


_OWN = {"data_digest": ("dataset", _data_digest), "weights_digest": ("model", weights_digest)}
