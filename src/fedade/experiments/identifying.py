"""Experiments and cells that say which weights and data of the user's own they have."""

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

from fedade.experiments.assignments import in_present_words, with_setting
from fedade.experiments.cell import Cell
from fedade.experiments.settings import Experiment, experiment_from, merged
from fedade.scenarios.own_models import identified


def identified_experiment(experiment: Experiment) -> Experiment:
    """The experiment with the digests of its own weights and data; others than it said are refused."""
    return experiment.model_copy(update={"scenario": identified(experiment.scenario)})


def changed_cell(cell: Cell, assignments: Sequence[str]) -> Cell:
    if not assignments:
        return cell
    plain, entry = cell.experiment.as_plain(), cell.experiment.entry
    # What a row sets for itself goes below what is assigned now.
    plain["methods"] = [{"name": entry.name, entry.method: {}}]
    plain["method"] = {entry.method: merged(plain["method"].get(entry.method, {}), entry.settings)}
    changed = identified_experiment(experiment_from(in_present_words(reduce(with_setting, assignments, plain))))
    return replace(cell, experiment=changed.of_one(changed.entry, cell.seed))
