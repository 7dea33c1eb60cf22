"""Scenarios: what is deployed and how the clients' data then drifts."""
