"""What a client brings into a new run from those before it."""

from dataclasses import replace

from fedade.core.errors import FedadeError
from fedade.flower.settings import CONFIG, FlowerTask, read_task
from fedade.flower.snapshots import Snapshot, Store, newest_state


def inherited(store: Store, task: FlowerTask) -> Snapshot | None:
    """Where the stream stands, so that no batch comes twice; of the same method and deployment also what was learned.

    None where the client has no state of another run.
    """
    siblings = [folder for folder in store.folder.parent.glob("*") if folder.name != store.folder.name]
    if (newest := newest_state(siblings)) is None:
        return None
    before, turn = replace(store, folder=newest[0]), newest[1]
    found = before.load(turn) if _same(before, task) else None
    return Snapshot(store.form if found is None else found.client, before.cursor_at(turn))


def _same(before: Store, task: FlowerTask) -> bool:
    """Whether states are of the method, with its settings, and of the deployment that a task has."""
    try:
        earlier = read_task(before.folder) if (before.folder / CONFIG).exists() else None
    except FedadeError:  # of a version whose settings this one does not understand
        return False
    return earlier is not None and (earlier.method(), earlier.deployment) == (task.method(), task.deployment)
