"""Attention is found in a graph however it is written, unless somebody else reads what the kernel keeps to itself."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from speed.networks import Attention
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from fedade import kernels
from fedade.core.normalisation import PassContext, making_pass
from fedade.models.attention import TokenAttention
from fedade.models.traced import traced

from .planned import assert_same_values_and_gradients

WIDTH, HEADS, TOKENS = 16, 2, 5


class OneCall(Attention):
    """As timm's vision transformers."""

    def forward(self, tokens: Tensor) -> Tensor:
        n, count, width = tokens.shape
        parts = self.together(tokens).reshape(n, count, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        queries, keys, values = parts.unbind(0)
        mixed = F.scaled_dot_product_attention(queries, keys, values, dropout_p=0.0)
        return self.out(mixed.transpose(1, 2).reshape(n, count, width))


class ScaledBefore(Attention):
    """As timm's without its fused call."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__(width, heads)
        self.drop = nn.Dropout(0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        queries, keys, values = self.together(tokens).chunk(3, -1)
        queries, keys, values = (one.unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in (queries, keys, values))
        weights = torch.matmul(queries * 0.3, keys.transpose(-2, -1)).softmax(dim=-1)
        return self.out((self.drop(weights) @ values).transpose(1, 2).flatten(2))


class Apart(nn.Module):
    """A product each for queries, keys and values."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.queries, self.keys, self.values = (nn.Linear(width, width) for _ in range(3))

    def forward(self, tokens: Tensor) -> Tensor:
        queries, keys, values = (
            part(tokens).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in (self.queries, self.keys, self.values)
        )
        return (F.softmax(queries @ keys.mT / 2.5, -1) @ values).transpose(1, 2).flatten(2)


class OneForTwo(Apart):
    """Keys are values: their gradients would have to be added."""

    def forward(self, tokens: Tensor) -> Tensor:
        queries, keys = (
            part(tokens).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.queries, self.keys)
        )
        return F.scaled_dot_product_attention(queries, keys, keys).transpose(1, 2).flatten(2)


class Gated(Attention):
    """A part of the product is no query, key or value."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__(width, heads)
        self.together = nn.Linear(width, 4 * width)

    def forward(self, tokens: Tensor) -> Tensor:
        gate, queries, keys, values = self.together(tokens).chunk(4, -1)
        queries, keys, values = (one.unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in (queries, keys, values))
        return gate * F.scaled_dot_product_attention(queries, keys, values).transpose(1, 2).flatten(2)


class QueriesAdded(Attention):
    """Somebody else reads the queries, too."""

    def forward(self, tokens: Tensor) -> Tensor:
        queries, keys, values = self.together(tokens).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = (queries @ keys.mT).softmax(-1) @ values + queries
        return self.out(mixed.transpose(1, 2).flatten(2))


class Changed(OneCall):
    """Masked, or read by others: what the kernel does not know."""

    def __init__(self, how: str) -> None:
        super().__init__(WIDTH, HEADS)
        self.how = how

    def forward(self, tokens: Tensor) -> Tensor:
        queries, keys, values = self.together(tokens).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        if self.how == "causal":
            mixed = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        elif self.how == "masked":
            mixed = F.scaled_dot_product_attention(queries, keys, values, queries @ keys.mT)
        elif self.how == "another softmax":
            mixed = (queries @ keys.mT).softmax(-2) @ values
        elif self.how == "written in place":
            weights = (queries @ keys.mT).softmax(-1)
            queries = queries.mul_(2)
            mixed = weights @ values + queries
        else:
            weights = (queries @ keys.mT).softmax(-1)
            mixed = weights @ values + weights.sum()
        return self.out(mixed.transpose(1, 2).flatten(2))


FOUND = {
    "two products": Attention, "one call": OneCall, "scaled before": ScaledBefore, "apart": Apart, "gated": Gated,
    "queries added": QueriesAdded,
}  # fmt: skip


def attentions(module: nn.Module, tokens: Tensor) -> list[TokenAttention]:
    plan, why = traced(module, tokens)
    assert plan is not None, why
    return [step for step in plan.steps if isinstance(step, TokenAttention)]


@pytest.mark.parametrize("name", FOUND)
@pytest.mark.parametrize("fused", [False, True])
def test_it_has_the_values_and_gradients_of_the_module(name, fused, monkeypatch):
    """As plain nodes; and by the layout that was found for the kernel."""
    module = FOUND[name](WIDTH, HEADS).double().eval()
    tokens = torch.randn(3, 2, TOKENS, WIDTH, dtype=torch.float64)
    plan, why = traced(module, tokens[0])
    assert plan is not None, why
    assert sum(isinstance(step, TokenAttention) for step in plan.steps) == 1
    asked = []
    monkeypatch.setattr("fedade.models.attention.attends", lambda *given: asked.append(given) or fused)
    # Other ways would run client by client.
    assert_same_values_and_gradients(plan, module, tokens, lambda: sdpa_kernel(SDPBackend.MATH))
    assert asked


def test_views_of_one_product_are_read_where_they_lie():
    tokens = torch.randn(2, TOKENS, WIDTH)
    for name in ("two products", "one call", "scaled before"):
        (one,) = attentions(FOUND[name](WIDTH, HEADS).eval(), tokens)
        assert [node.target for node in one.sources] == ["together"]
        assert [places.first for places in one.heads.places] == [0, WIDTH, 2 * WIDTH]
    (one,) = attentions(Apart(WIDTH, HEADS).eval(), tokens)
    assert [node.target for node in one.sources] == ["queries", "keys", "values"]
    (one,) = attentions(Gated(WIDTH, HEADS).eval(), tokens)
    assert "together" not in [node.target for node in one.sources]


@pytest.mark.parametrize("how", ["causal", "masked", "another softmax", "written in place", "read twice"])
def test_what_the_kernel_does_not_do_runs_as_it_is(how):
    assert not attentions(Changed(how).eval(), torch.randn(2, TOKENS, WIDTH))


def test_keys_that_are_values_run_as_they_are():
    assert not attentions(OneForTwo(WIDTH, HEADS).eval(), torch.randn(2, TOKENS, WIDTH))


def test_many_tokens_run_as_they_are():
    assert attentions(OneCall(WIDTH, HEADS).eval(), torch.randn(1, 128, WIDTH))
    assert not attentions(OneCall(WIDTH, HEADS).eval(), torch.randn(1, 129, WIDTH))


def test_another_number_of_tokens_than_traced_is_right(monkeypatch):
    monkeypatch.setattr(kernels, "_runs_triton", lambda _tensor: False)
    module = Attention(WIDTH, HEADS).eval()
    plan, _ = traced(module, torch.randn(2, TOKENS, WIDTH))
    monkeypatch.setattr("fedade.models.attention.attends", lambda *_: True)
    longer = torch.randn(3, TOKENS + 2, WIDTH)
    with torch.no_grad(), making_pass(PassContext(native=False)):
        torch.testing.assert_close(plan.run(module, longer), module(longer))


def test_which_attention_is_fused_is_told():
    tokens = torch.randn(2, TOKENS, WIDTH)
    plans = [traced(nn.Sequential(one).eval(), tokens)[0] for one in (OneCall(WIDTH, HEADS), Changed("masked"))]
    assert [plan.attentions() for plan in plans] == [(["0"], []), ([], ["0"])]
