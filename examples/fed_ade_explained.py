"""Fed-ADE, equation by equation, as a script."""

from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
import torch
from digits_model import digits, trained_network

import fedade
from fedade.maths.losses import class_weights, estimated_risk
from fedade.maths.signals import dynamics
from fedade.maths.signals.dynamics import adaptive_rate

images, labels = digits()
network = trained_network(images[:700], labels[:700])
body, head = network[:-1], network[-1]

# The stream
horizon, samples = 60, 60
jumping, drifting = (
    fedade.drifting_streams(
        images[1000:], labels[1000:], schedule=name, num_clients=1, num_timesteps=horizon, samples=samples, seed=4
    )
    for name in ("squ", "lin")
)

# What a client remembers
@torch.no_grad()
def summaries(streams):
    for timestep in range(1, horizon + 1):
        features = body(streams.draw(np.array([0]), timestep).inputs[0])
        yield dynamics.mean_prediction(head(features).softmax(-1)), dynamics.mean_feature(features)

# Two signals
def signals(streams):
    seen = list(summaries(streams))
    unc = torch.stack([dynamics.uncertainty_dynamics(old[0], new[0]) for old, new in pairwise(seen)])
    rep = torch.stack([dynamics.representation_dynamics(old[1], new[1]) for old, new in pairwise(seen)])
    return unc, rep, dynamics.combined_dynamics(unc, rep)


figure, axes = plt.subplots(2, 2, figsize=(10, 4.4), sharex=True, sharey="row", layout="constrained")
for column, (name, streams) in enumerate((("classes jump", jumping), ("classes drift", drifting))):
    priors = [streams.draw(np.array([0]), timestep).prior[0] for timestep in range(1, horizon + 1)]
    axes[0, column].stackplot(range(horizon), torch.stack(priors).T)
    axes[0, column].set_title(name)
    for label, values in zip(("uncertainty", "representation", "both"), signals(streams)):
        axes[1, column].plot(range(1, horizon), values, label=label)
axes[0, 0].set_ylabel("true class\nfrequencies")
axes[1, 0].set_ylabel("signal")
axes[1, 0].legend(fontsize="small")
plt.show()

# The rate
figure, axes = plt.subplots(figsize=(8, 2.4), layout="constrained")
for name, streams in (("classes jump", jumping), ("classes drift", drifting)):
    axes.plot(adaptive_rate(signals(streams)[2], low=5e-6, high=1e-4), label=name)
axes.set(title="learning rate", xlabel="timestep")
axes.legend()
plt.show()

# A loss without labels
with torch.no_grad():
    held_out = head(body(images[700:1000]))
    confusion = fedade.confusion_matrix(held_out.softmax(-1), labels[700:1000])
    drawn = jumping.draw(np.array([0]), 6)
    answers = head(body(drawn.inputs[0])).softmax(-1)
    prior = fedade.estimate_prior(answers, confusion, torch.full((10,), 0.1))

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
left.imshow(confusion, cmap="Blues")
left.set(title="confusion matrix", xlabel="true class", ylabel="predicted class")
for offset, (name, values) in enumerate(
    {"true": drawn.prior[0], "mean prediction": answers.mean(0), "estimated": prior}.items()
):
    right.bar(torch.arange(10) + 0.27 * offset, values, 0.26, label=name)
right.set(title="class frequencies of a batch", xlabel="class")
right.legend()
plt.show()

weights = class_weights(prior, labels[700:1000])
print("estimated risk:", estimated_risk(held_out, labels[700:1000], weights).item())
print("risk before   :", torch.nn.functional.cross_entropy(held_out, labels[700:1000]).item())

# A timestep
import tempfile

scenario = {"preset": "digits-label", "scenario": {"schedule": "squ", "num_clients": 10, "num_timesteps": 40}}
results = fedade.simulate(["source", "fix-lr-mid", "fed-ade", "oracle-prior"], scenario, out=tempfile.mkdtemp())
for row in results.table:
    print(f"{row.method:14} {row.accuracy_post:6.1%}")
results.figures["signals"]
