import os

import torch

from fedade.core.threads import SMALL_NETWORK, available_cores, set_threads


def test_where_the_system_keeps_no_list_of_cores_all_of_the_machines_count(monkeypatch):
    """As on macOS."""
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert available_cores() == 3
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert available_cores() == 1


def test_small_networks_have_one_thread_and_a_choice_of_the_users_is_left_alone(monkeypatch):
    chosen = []
    monkeypatch.setattr(torch, "set_num_threads", chosen.append)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    set_threads(SMALL_NETWORK)
    set_threads(SMALL_NETWORK + 1)
    assert chosen == [1, available_cores()]
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    set_threads(1)
    assert len(chosen) == 2
