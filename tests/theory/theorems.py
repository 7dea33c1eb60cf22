"""Both sides of the theorems on problems that meet their assumptions: prints docs/results/theorems.csv."""

import sys

from .test_descent import QuadraticClients, descend
from .test_regret_bound import run


def rows() -> list[str]:
    lines = ["theorem,problem,rate,left,right"]
    for changes in (0, 40):
        for rate in (0.005, 0.02, 0.1):
            regret, terms = run(changes, rate)
            lines.append(f"th:regretbound,{changes} changes,{rate},{regret:.4g},{terms.total:.4g}")
    regret, terms = run(0, 0.02, direction=-1.0)
    lines.append(f"th:regretbound,ascending,0.02,{regret:.4g},{terms.total:.4g}")
    for seed in range(3):
        clients = QuadraticClients(seed)
        for share in (1.0, 0.3):
            rate = share * clients.constants(0.0).ceiling()
            left, right = descend(clients, rate, seed)
            lines.append(f"th:convergence,clients {seed} at {share:g} of the ceiling,{rate:.4g},{left:.4g},{right:.4g}")
    return lines


if __name__ == "__main__":
    sys.stdout.write("\n".join(rows()) + "\n")
