"""The paper's equations as pure functions of tensors: no state, no randomness, no simulator."""
