"""What a method's functions return, looked at one by one before anything is built on it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from fedade.checking.trials import MethodTrial, require
from fedade.core.context import ClientContext, Truth
from fedade.core.method import with_rounds


def functions_return_what_they_should(trial: MethodTrial) -> None:
    """States are trees of tensors that keep their shapes, plans are named tensors, predictions are probabilities."""
    method, scenario = trial.method, trial.scenarios.usual
    deployment, batch = scenario.deployment, scenario.streams.draw(np.arange(1), 1)
    federated = with_rounds(method)
    shared = federated.begin_server(deployment) if federated is not None else {}
    truth = Truth(batch.labels[0], batch.prior[0]) if method.card.oracle else None

    def context(inputs: Tensor) -> ClientContext:
        return ClientContext(deployment, inputs, torch.tensor(1), torch.tensor(5), shared, truth)

    with torch.no_grad():
        state = _drawing_nothing(method.begin, context(batch.inputs[0][:0]))
        _require_tensors(state, "begin")
        answer: Any = _drawing_nothing(method.observe, context(batch.inputs[0]), state)
        require(isinstance(answer, tuple) and len(answer) == 2, f"observe gives {_kind(answer)}, not (state, plan)")
        moved, plan = answer
        _require_tensors(moved, "observe")
        before, after = _shapes(state), _shapes(moved)
        require(before == after, f"observe gives a state {after}, and the one it was given is {before}")
        named = isinstance(plan, dict) and all(isinstance(value, Tensor) for value in plan.values())
        require(named, f"observe gives a plan {_kind(plan)}, not a dict of tensors")
        predicted: Any = _drawing_nothing(method.predict, context(batch.inputs[0]), moved)
    expected = [len(batch.inputs[0]), deployment.num_classes]
    found = list(predicted.shape) if isinstance(predicted, Tensor) else _kind(predicted)
    require(found == expected, f"predict gives {found} for {expected[0]} inputs, not probabilities {expected}")
    require(predicted.isfinite().all(), "predict gives numbers that are not finite")
    sums = predicted.sum(-1)
    whole = torch.allclose(sums, torch.ones_like(sums), atol=1e-3) and bool((predicted >= 0).all())
    require(whole, f"predict gives rows that are no probabilities, the first sums to {float(sums[0]):.4g}; use softmax")


def _drawing_nothing(function: Callable[..., Any], *given: Any) -> Any:
    """What a function returns, if it left PyTorch's generator alone."""
    before = torch.get_rng_state()
    answer = function(*given)
    require(
        torch.equal(before, torch.get_rng_state()),
        f"{function.__name__} draws from PyTorch's generator; draw from ctx.key with fedade.maths.counter",
    )
    return answer


def _require_tensors(state: Any, function: str) -> None:
    other = next((leaf for leaf in pytree.tree_leaves(state) if not isinstance(leaf, Tensor)), None)
    require(other is None, f"{function} gives a state that holds {_kind(other)}; make it a tensor")


def _shapes(state: Any) -> str:
    leaves, structure = pytree.tree_flatten(state)
    return f"{structure} {[list(leaf.shape) for leaf in leaves]}" if len(leaves) != 1 else str(list(leaves[0].shape))


def _kind(value: Any) -> str:
    return f"a tensor {list(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
