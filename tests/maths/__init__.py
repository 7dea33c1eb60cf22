"""Properties of the equations, for all inputs."""
