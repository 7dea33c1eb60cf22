"""Theorem th:convergence on clients with quadratic losses, whose constants are known exactly."""

import math

import pytest
import torch
from torch import Tensor

from fedade.theory.equations.convergence import Convergence

from ..maths.samples import generator

CLIENTS, PARTICIPANTS, STEPS, ROUNDS, NOISE = 8, 4, 3, 400, 0.5
SHARED, PERSONAL = 5, 3


class QuadraticClients:
    """L_c(ψ, φ_c) = ½ (x − m_c)ᵀ A (x − m_c) with x = (ψ, φ_c); the mean over clients is bounded below by 0."""

    def __init__(self, seed: int) -> None:
        root = torch.randn(SHARED + PERSONAL, SHARED + PERSONAL, generator=generator(seed)).double()
        self.hessian = root @ root.mT / 8 + 0.1 * torch.eye(SHARED + PERSONAL).double()
        self.minima = torch.randn(CLIENTS, SHARED + PERSONAL, generator=generator(seed + 1)).double()

    def gradients(self, shared: Tensor, personal: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Losses and gradients by ψ and φ of every client that is given."""
        gaps = torch.cat([shared.expand(len(personal), -1), personal], 1) - self.minima[: len(personal)]
        slopes = gaps @ self.hessian
        return (gaps * slopes).sum(1) / 2, slopes[:, :SHARED], slopes[:, SHARED:]

    def constants(self, spread: float, participants: int = PARTICIPANTS, noise: float = NOISE) -> Convergence:
        blocks = (self.hessian[:SHARED, :SHARED], self.hessian[SHARED:, SHARED:], self.hessian[:SHARED, SHARED:])
        norms = [float(torch.linalg.matrix_norm(block, 2)) for block in blocks]
        variances = (noise**2 * SHARED, noise**2 * PERSONAL)
        # All clients have one Hessian, but their φ drift apart: ρ² = 0 and δ² is the largest spread that was met.
        return Convergence(*norms, 0.0, spread, *variances, participants, CLIENTS)


def descend(clients: QuadraticClients, rate: float, seed: int) -> tuple[float, float]:
    """Both sides of the inequality (theorem1), as the rounds went."""
    random = generator(seed)
    constants = clients.constants(0.0)
    steps = (rate / (constants.k_shared * STEPS), rate / (constants.k_personal * STEPS))
    shared, personal = torch.zeros(SHARED).double(), torch.zeros(CLIENTS, PERSONAL).double()
    squares, spreads, first = [], [], None
    for _ in range(ROUNDS):
        losses, by_shared, by_personal = clients.gradients(shared, personal)
        first = float(losses.mean()) if first is None else first
        mean = by_shared.mean(0)
        squares.append((float(mean.square().sum()), float(by_personal.square().sum(1).mean())))
        spreads.append(float((by_shared - mean).square().sum(1).mean()))
        chosen = torch.randperm(CLIENTS, generator=random)[:PARTICIPANTS]
        own = shared.expand(CLIENTS, -1).clone()
        for _ in range(STEPS):
            gaps = torch.cat([own, personal], 1) - clients.minima
            noisy = gaps @ clients.hessian + NOISE * torch.randn(gaps.shape, generator=random).double()
            own[chosen] -= steps[0] * noisy[chosen, :SHARED]
            personal[chosen] -= steps[1] * noisy[chosen, SHARED:]
        shared = own[chosen].mean(0)
    measured = clients.constants(max(spreads))
    left = measured.descent(*(sum(column) / ROUNDS for column in zip(*squares, strict=True)))
    return left, measured.descent_bound(first, (rate, rate), ROUNDS, STEPS)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("share", [1.0, 0.3])
def test_at_the_ceiling_and_below_it_the_left_side_is_the_smaller(seed, share):
    clients = QuadraticClients(seed)
    left, right = descend(clients, share * clients.constants(0.0).ceiling(), seed)
    assert 0 < left <= right


def test_far_above_the_ceiling_it_is_the_larger():
    clients = QuadraticClients(0)
    left, right = descend(clients, 8.0, 0)
    assert not left <= right


def test_the_printed_inequality_lacks_a_factor_of_its_proof():
    """One client, one exact step a round on K x²/2: the sum is L⁰/η over 1 − η/2, not the printed L⁰/η at most."""
    rate, rounds, curvature = 1 / 24, 2000, 3.0
    exact = Convergence(curvature, curvature, 0.0, 0.0, 0.0, 0.0, 0.0, 1, 1)
    places = [(1 - rate) ** number for number in range(rounds)]
    squares = sum((curvature * place) ** 2 for place in places) / rounds
    left, right = exact.descent(squares, 0.0), exact.descent_bound(curvature / 2, (rate, rate), rounds, 1)
    assert left / right == pytest.approx(1 / (1 - rate / 2))
    assert left <= 16 * right  # the proof, before its constants are dropped (eqn:final)


def test_the_right_side_is_the_printed_sum():
    constants = Convergence(2.0, 5.0, 1.0, 0.0, 0.3, 0.7, 1.1, 3, 12)
    chi, share, rate, steps = 1 / math.sqrt(10), 0.25, 0.01, 4
    first = 0.3 / 2 * (1 - share) + 0.7 / 2 + 1.1 * (3 + chi**2 * 9) / (5 * 12)
    second = ((0.7 + 0.3) / 2 + 1.1 * 3 / (5 * 12)) * (1 - 1 / steps) + chi**2 * 1.1 / 5
    expected = 2.0 / (rate * 50) + rate * first + rate**2 * second
    assert constants.descent_bound(2.0, (rate, rate), 50, steps) == pytest.approx(expected)
    assert constants.descent_bound(2.0, (rate / 2, 2 * rate), 50, steps) > expected
