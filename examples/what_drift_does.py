"""What drift does to a model, as a script."""

import matplotlib.pyplot as plt
import numpy as np
import torch
from digits_model import digits, trained_network

import fedade

images, labels = digits()
network = trained_network(images[:700], labels[:700])

# How far, how fast
figure, axes = plt.subplots(figsize=(8, 2.4), layout="constrained")
for height, name in enumerate(("lin", "sin", "squ", "ber")):
    axes.plot(fedade.shift_schedule(name, num_timesteps=100)[0] * 0.8 + height, drawstyle="steps-post", label=name)
axes.set(yticks=[], xlabel="timestep")
axes.legend(ncols=4, loc="upper center", bbox_to_anchor=(0.5, 1.25))
plt.show()

# The four kinds
faults = ["noise", "dead_pixels", "blur", "low_contrast", "bright", "vignette"]  # of the cameras of six clients


def streams_of(kind):
    worn = faults if kind in ("covariate", "both") else []
    return fedade.drifting_streams(
        images[1000:], labels[1000:], kind=kind, num_clients=6, num_timesteps=20, samples=40, corruptions=worn, seed=3
    )


kinds = ("none", "label", "covariate", "both")
figure, axes = plt.subplots(4, 13, figsize=(10, 3.6), width_ratios=[1] * 6 + [0.4] + [1] * 6)
for row, kind in enumerate(kinds):
    for start, timestep in ((0, 1), (7, 20)):
        shown = streams_of(kind).draw(np.array([3]), timestep).inputs[0, :6, 0]
        for column, image in enumerate(shown):
            axes[row, start + column].imshow(image, cmap="gray", vmin=0, vmax=255)
    axes[row, 0].set_ylabel(kind, rotation=0, ha="right", va="center")
for panel in axes.flat:
    panel.set(xticks=[], yticks=[])
for panel in axes[:, 6]:
    panel.axis("off")
axes[0, 0].set_title("first timestep", loc="left", fontsize=10)
axes[0, 7].set_title("last timestep", loc="left", fontsize=10)
plt.show()

# What the model makes of it
@torch.no_grad()
def history(kind):
    streams, accuracy, top = streams_of(kind), [], []
    for timestep in range(1, streams.num_timesteps + 1):
        drawn = streams.draw(np.arange(6), timestep)
        logits = network(drawn.inputs.flatten(0, 1)).view(6, 40, -1)
        accuracy.append((logits.argmax(-1) == drawn.labels).float().mean().item())
        top.append(logits.softmax(-1).mean(1).max(-1).values.mean().item())
    return accuracy, top


figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3), layout="constrained")
for kind in kinds:
    accuracy, top = history(kind)
    left.plot(accuracy, label=kind)
    right.plot(top, label=kind)
left.set(title="accuracy", xlabel="timestep", ylim=(0, 1))
right.set(title="share of the most predicted class", xlabel="timestep", ylim=(0, 1))
left.legend()
plt.show()

# Why one answer is not enough
import tempfile

deployment = fedade.deploy(network, (images[700:1000], labels[700:1000]))
methods = ["source", "prior-bbse", "tent", "fed-ade-plus"]
print(f"{'':14}" + "".join(f"{kind:>11}" for kind in kinds))
scores = {kind: fedade.simulate(methods, deployment, streams_of(kind), out=tempfile.mkdtemp()).table for kind in kinds}
for number, name in enumerate(methods):
    print(f"{name:14}" + "".join(f"{scores[kind][number].accuracy_post:11.1%}" for kind in kinds))
