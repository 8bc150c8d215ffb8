"""Two classes as the converters of LightGBM, XGBoost, CatBoost and scikit-learn write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from sardonyx.backends.base import Backend
from tests.ops.ml_oracle import assert_like, onnxruntime_ml, run_ml

X = np.linspace(-2, 2, 41, dtype=np.float32)[:, None]
# The values of the two leaves of each tree.
SIGNED = [(-0.31, 0.24), (0.12, -0.43), (-0.2, 0.55)]
SHARES = [(0.1, 0.3), (0.02, 0.3), (0.3, 0.05)]
# For each class that has scores, the sign of a leaf's value in them.
ONE_SCORE = {0: 1}
BOTH_SIGNS = {0: -1, 1: 1}


def stumps(leaves: list[tuple[float, float]], signs: Mapping[int, int], **more: Any) -> Any:
    """Trees of one comparison each, with the leaves' values as scores of the classes in `signs`."""
    nodes = [(tree, node) for tree in range(len(leaves)) for node in range(3)]
    votes = [
        (tree, node, target, sign * leaves[tree][node - 1])
        for tree in range(len(leaves))
        for node in (1, 2)
        for target, sign in signs.items()
    ]
    return {
        "nodes_treeids": [tree for tree, _ in nodes],
        "nodes_nodeids": [node for _, node in nodes],
        "nodes_featureids": [0] * len(nodes),
        "nodes_values": [0.3 * tree - 0.5 for tree, _ in nodes],
        "nodes_modes": ["LEAF" if node else "BRANCH_LEQ" for _, node in nodes],
        "nodes_truenodeids": [0 if node else 1 for _, node in nodes],
        "nodes_falsenodeids": [0 if node else 2 for _, node in nodes],
        "class_treeids": [vote[0] for vote in votes],
        "class_nodeids": [vote[1] for vote in votes],
        "class_ids": [vote[2] for vote in votes],
        "class_weights": [vote[3] for vote in votes],
        "classlabels_int64s": [0, 1],
        **more,
    }


LAYOUTS = {
    "LightGBM": stumps(SIGNED, ONE_SCORE, post_transform="LOGISTIC"),
    "XGBoost": stumps(SIGNED, ONE_SCORE, post_transform="LOGISTIC", base_values=[-0.3]),
    "XGBoost, hinge": stumps(SIGNED, ONE_SCORE, base_values=[0.5]),
    "CatBoost": stumps(SIGNED, BOTH_SIGNS, post_transform="LOGISTIC"),
    "scikit-learn, shares": stumps(SHARES, ONE_SCORE),
    "scikit-learn, raw scores": stumps(SIGNED, ONE_SCORE),
}


# Of two scores each, onnxruntime returns the labels 0 and 1, whatever the labels are.
CASES = [(layout, labels) for layout in LAYOUTS for labels in ([0, 1], [-1, 7])]
CASES.remove(("CatBoost", [-1, 7]))


@pytest.mark.parametrize(("layout", "labels"), CASES, ids=str)
def test_two_classes_are_those_of_onnxruntime(xp: Backend, layout: str, labels: list[int]) -> None:
    trees = LAYOUTS[layout] | {"classlabels_int64s": labels}
    actual = run_ml(xp, "TreeEnsembleClassifier", X, opset=2, outputs=2, **trees)
    expected = onnxruntime_ml("TreeEnsembleClassifier", X, opset=2, outputs=2, **trees)
    for found, wanted in zip(actual, expected, strict=True):
        assert_like(xp.fetch(found), wanted)


def test_the_bias_and_the_labels_of_catboost(xp: Backend) -> None:
    """Onnxruntime adds the bias of each class to the score of the other."""
    options: Any = {"post_transform": "NONE", "outputs": 2, "opset": 2}
    _, scores = run_ml(xp, "TreeEnsembleClassifier", X, **stumps(SIGNED, BOTH_SIGNS), **options)
    biased = stumps(SIGNED, BOTH_SIGNS, base_values=[-0.4, 0.4], classlabels_int64s=[-1, 7])
    both = run_ml(xp, "TreeEnsembleClassifier", X, **biased, **options)
    labels, shifted = map(xp.fetch, both)
    assert_like(shifted, xp.fetch(scores) + np.asarray([-0.4, 0.4], np.float32))
    assert_like(labels, np.where(shifted[:, 1] > shifted[:, 0], 7, -1))
