"""Copies of trees hold the same values in memory of their own, however the leaves lie."""

import torch

from fedade.core import tree


def test_copies_share_no_memory_with_anything():
    common = torch.arange(6.0)
    given = {
        "expanded": common.expand(3, 6),
        "turned": torch.arange(12.0).reshape(3, 4).mT,
        "part": torch.arange(20).reshape(4, 5)[:, 1:3],
        "twice": (common, common),
        "flags": torch.tensor([True, False]),
    }
    copies = tree.copied(given)
    expected = tree.tree_map(torch.clone, given)
    for leaf in tree.leaves(copies):
        leaf += leaf.clone()  # would be seen by all that share its memory
    doubled = tree.tree_map(lambda leaf: leaf + leaf, expected)
    assert tree.tree_map(torch.equal, copies, doubled) == tree.tree_map(lambda _leaf: True, doubled)
    assert common[1] == 1


def test_tensors_are_written_to_others_of_their_own_kind():
    sources = [torch.arange(3), torch.ones(2, 3).mT, torch.rand(2), torch.tensor(True)]
    targets = [torch.zeros(3), torch.zeros(3, 2), torch.zeros(2), torch.tensor(False)]
    tree.copy_all(sources, targets)
    for source, target in zip(sources, targets, strict=True):
        assert torch.equal(source.to(target.dtype), target)


def test_what_two_trees_share_is_not_chosen():
    shared, first, second = torch.zeros(1), torch.ones(1), torch.ones(1) * 2
    for flag, expected in ((True, first), (False, second)):
        chosen = tree.choose(torch.tensor(flag), (shared, first), (shared, second))
        assert chosen[0] is shared
        assert torch.equal(chosen[1], expected)
