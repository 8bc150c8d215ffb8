from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.backends.numpy import HOST
from sardonyx.ops.ml import forest, nodes
from tests.ops.forests import COMPARISONS, MODES, Leaf, Node, grown, scores, with_ids, with_leaves
from tests.ops.ml_oracle import assert_like, onnxruntime_ml, run_ml

AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
BY_AGGREGATE = pytest.mark.parametrize("aggregate", AGGREGATES)


def rng_of(*seed: Any) -> np.random.Generator:
    return np.random.default_rng([*b"".join(str(part).encode() for part in seed)])


def small_integers(
    rng: np.random.Generator, shape: tuple[int, int], dtype: Any, missing: float = 0.0
) -> np.ndarray:
    x = rng.integers(-3, 4, shape).astype(dtype)
    if missing:
        x[rng.random(shape) < missing] = np.nan
    return x


def stump(mode: str = "BRANCH_LEQ", split: float = 0.0, weights: Any = (1.0, 2.0)) -> Node:
    """Compares one feature, with one weight if that is true and one if it is false."""
    return Node(mode, 0, split, False, *(Leaf([(0, weight)]) for weight in weights))


# -- against onnxruntime, and against a plain walk ------------------------------------------------


@pytest.mark.parametrize(
    ("modes", "votes", "aggregate"),
    [
        *(((mode,), "any", "SUM") for mode in COMPARISONS),
        *((tuple(COMPARISONS), "any", aggregate) for aggregate in AGGREGATES),
        *((tuple(COMPARISONS), "all", aggregate) for aggregate in AGGREGATES),
    ],
    ids=str,
)
@pytest.mark.sampled(3)
def test_regression_is_that_of_onnxruntime(
    xp: Backend, modes: tuple[str, ...], votes: str, aggregate: str
) -> None:
    rng = rng_of(modes, votes, aggregate)
    trees = [grown(rng, targets=3, modes=modes, votes=votes) for _ in range(20)]
    x = small_integers(rng, (29, 3), np.float32, missing=0.2)
    if "BRANCH_NEQ" in modes:
        x = np.nan_to_num(x)  # There onnxruntime does not ask the node where a NaN goes.
    known = with_ids(trees) | {"n_targets": 3, "aggregate_function": aggregate}
    expected = onnxruntime_ml("TreeEnsembleRegressor", x, opset=3, **known)
    assert_like(run_ml(xp, "TreeEnsembleRegressor", x, opset=3, **known), expected)


@BY_AGGREGATE
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.sampled(3)
def test_ensembles_are_those_of_a_plain_walk(xp: Backend, aggregate: str, dtype: Any) -> None:
    if xp.name == "strict" and dtype == np.float16:
        dtype = np.float32  # The standard has no float16.
    rng = rng_of(aggregate, dtype)
    trees = [grown(rng, targets=3, modes=MODES) for _ in range(6)]
    x = small_integers(rng, (40, 3), dtype, missing=0.2)
    known = with_leaves(trees, dtype) | {"n_targets": 3}
    y = run_ml(xp, "TreeEnsemble", x, aggregate_function=AGGREGATES.index(aggregate), **known)
    assert y.dtype == dtype
    rounded = 2e-2 if dtype == np.float16 else 1e-5
    np.testing.assert_allclose(y, scores(trees, x, 3, aggregate), rtol=rounded, atol=rounded)


def test_sets_are_found_where_their_nodes_stand(xp: Backend) -> None:
    """The sets follow the order of the nodes, which need not be that of a walk."""
    known: dict[str, Any] = {
        "nodes_featureids": [0, 0, 0],
        "nodes_modes": np.asarray([6, 6, 6], np.uint8),
        "nodes_splits": np.zeros(3, np.float32),
        "nodes_truenodeids": [2, 0, 1],
        "nodes_trueleafs": [0, 1, 1],
        "nodes_falsenodeids": [1, 2, 3],
        "nodes_falseleafs": [0, 1, 1],
        "tree_roots": [0],
        "leaf_targetids": [0, 0, 0, 0],
        "leaf_weights": np.asarray([1, 2, 4, 8], np.float32),
        "membership_values": np.asarray([1, 2, np.nan, 5, -0.0, np.nan, 2, 7, np.nan], np.float32),
        "n_targets": 1,
    }
    x = np.asarray([[1], [2], [5], [0], [7], [np.nan]], np.float32)
    y = run_ml(xp, "TreeEnsemble", x, **known)
    np.testing.assert_array_equal(y[:, 0], [8, 2, 1, 1, 4, 4])
    np.testing.assert_array_equal(y, onnxruntime_ml("TreeEnsemble", x, opset=5, **known))


def test_sets_of_many_members(xp: Backend) -> None:
    """More than a word of bits, and a mode that is not the only one."""
    members = np.arange(-200, 200, 3).astype(np.float32)
    known = with_leaves([stump("BRANCH_MEMBER"), stump("BRANCH_LT")], np.float32)
    known["membership_values"] = np.append(members, np.float32(np.nan))
    x = np.arange(-210, 210, dtype=np.float32)[:, None]
    y = run_ml(xp, "TreeEnsemble", x, n_targets=1, **known)
    expected = np.where(np.isin(x, members), 1, 2) + np.where(x < 0, 1, 2)
    np.testing.assert_array_equal(y, expected.astype(np.float32))


# -- exact comparisons ----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", COMPARISONS)
def test_a_missing_feature_goes_where_its_node_says(xp: Backend, mode: str) -> None:
    known = with_ids([stump(mode), stump(mode, weights=(10.0, 20.0))]) | {"n_targets": 1}
    known["nodes_missing_value_tracks_true"][0] = 1
    x = np.full((1, 1), np.nan, np.float32)
    y = run_ml(xp, "TreeEnsembleRegressor", x, opset=1, **known)
    assert y.item() == 1.0 + 20.0


def test_thresholds_may_be_closer_than_float32_tells_apart(xp: Backend) -> None:
    split = 1 + 2.0**-40
    known = with_ids([stump("BRANCH_LT", split)]) | {"n_targets": 1}
    for name in ("nodes_values", "target_weights"):
        known[f"{name}_as_tensor"] = np.asarray(known.pop(name), np.float64)
    x = np.asarray([[1.0], [split]])
    y = run_ml(xp, "TreeEnsembleRegressor", x, opset=3, **known)
    assert y.dtype == np.float32
    np.testing.assert_array_equal(y[:, 0], [1, 2])


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_integers_are_compared_as_they_are(xp: Backend, dtype: Any) -> None:
    known = with_ids([stump("BRANCH_LEQ", 2.0**24)]) | {"n_targets": 1}
    x = np.asarray([[2**24], [2**24 + 1]], dtype)
    y = run_ml(xp, "TreeEnsembleRegressor", x, opset=1, **known)
    np.testing.assert_array_equal(y[:, 0], [1, 2])


# -- what becomes of the votes --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("post_transform", "expected"),
    [
        ("NONE", [3.0]),
        ("LOGISTIC", [1 / (1 + np.exp(-3.0))]),
        ("SOFTMAX", [1.0]),
        ("SOFTMAX_ZERO", [1.0]),
    ],
)
def test_a_single_score_is_transformed_too(
    xp: Backend, post_transform: str, expected: list[float]
) -> None:
    known = with_ids([stump(weights=(3.0, 3.0))]) | {"n_targets": 1}
    known["post_transform"] = post_transform
    y = run_ml(xp, "TreeEnsembleRegressor", np.zeros((1, 1), np.float32), opset=3, **known)
    np.testing.assert_allclose(y, [expected], rtol=1e-6)


def test_transforms_are_numbered_as_the_standard_says(xp: Backend) -> None:
    known = with_leaves([grown(rng_of("transforms"), targets=3)], np.float32) | {"n_targets": 3}
    x = np.zeros((1, 3), np.float32)
    raw = run_ml(xp, "TreeEnsemble", x, **known)
    shares = np.exp(raw) / np.exp(raw).sum()
    softmax, logistic = (run_ml(xp, "TreeEnsemble", x, post_transform=i, **known) for i in (1, 2))
    np.testing.assert_allclose(softmax, shares, rtol=1e-6)
    np.testing.assert_allclose(logistic, 1 / (1 + np.exp(-raw)), rtol=1e-6)


@BY_AGGREGATE
def test_base_values_are_added_to_targets_that_nobody_voted_for(
    xp: Backend, aggregate: str
) -> None:
    known = with_ids([stump(), stump()]) | {"n_targets": 3, "base_values": [0.5, 1.5, -1.0]}
    x = np.zeros((1, 1), np.float32)
    y = run_ml(xp, "TreeEnsembleRegressor", x, opset=3, aggregate_function=aggregate, **known)
    np.testing.assert_array_equal(y, [[2.5 if aggregate == "SUM" else 1.5, 1.5, -1.0]])


# -- classes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "post_transform", "dtype"),
    [
        ([7, 3, 5], "NONE", np.int32),
        (["c", "a", "b"], "SOFTMAX", np.float64),
        ([7, 3, 5], "LOGISTIC", np.int64),
        (["c", "a", "b"], "SOFTMAX_ZERO", np.float32),
    ],
)
def test_classes_are_those_of_onnxruntime(
    xp: Backend, labels: list[Any], post_transform: str, dtype: Any
) -> None:
    rng = rng_of(labels, post_transform, dtype)
    kind = "strings" if isinstance(labels[0], str) else "int64s"
    known = with_ids([grown(rng, targets=3, votes="all") for _ in range(5)], "class")
    known |= {f"classlabels_{kind}": labels, "post_transform": post_transform}
    x = small_integers(rng, (20, 3), dtype)
    expected = onnxruntime_ml("TreeEnsembleClassifier", x, opset=3, outputs=2, **known)
    found = run_ml(xp, "TreeEnsembleClassifier", x, opset=3, outputs=2, **known)
    for actual, other in zip(found, expected, strict=True):
        assert_like(actual, other)


@pytest.mark.parametrize("base", [[], [0.25]])
@pytest.mark.parametrize(
    ("weights", "post_transform"),
    [((0.7, 0.3), "NONE"), ((2.0, -1.0), "NONE"), ((2.0, -1.0), "LOGISTIC")],
)
def test_one_score_for_two_classes_is_that_of_onnxruntime(
    xp: Backend, weights: Any, post_transform: str, base: list[float]
) -> None:
    known = with_ids([stump(weights=weights)], "class") | {"classlabels_strings": ["no", "yes"]}
    known |= {"post_transform": post_transform} | ({"base_values": base} if base else {})
    x = np.asarray([[-1], [1]], np.float32)
    expected = onnxruntime_ml("TreeEnsembleClassifier", x, opset=3, outputs=2, **known)
    found = run_ml(xp, "TreeEnsembleClassifier", x, opset=3, outputs=2, **known)
    for actual, other in zip(found, expected, strict=True):
        assert_like(actual, other)


def test_one_score_for_two_classes_is_transformed_where_all_weights_are_positive(
    xp: Backend,
) -> None:
    known = with_ids([stump(weights=(0.3, 0.3))], "class") | {"classlabels_int64s": [4, 9]}
    x = np.zeros((1, 1), np.float32)
    label, score = run_ml(
        xp, "TreeEnsembleClassifier", x, opset=3, outputs=2, post_transform="LOGISTIC", **known
    )
    likely = 1 / (1 + np.exp(-0.3))
    np.testing.assert_allclose(score, [[1 - likely, likely]], rtol=1e-6)
    assert label.tolist() == [9]


def test_two_scores_for_two_classes_are_compared(xp: Backend) -> None:
    tree = Node("BRANCH_LEQ", 0, 0.0, False, Leaf([(0, 0.7), (1, 0.3)]), Leaf([(0, 0.1), (1, 0.9)]))
    known = with_ids([tree], "class") | {"classlabels_int64s": [4, 9]}
    x = np.asarray([[-1], [1]], np.float32)
    label, score = run_ml(xp, "TreeEnsembleClassifier", x, opset=3, outputs=2, **known)
    assert label.tolist() == [4, 9]
    np.testing.assert_allclose(score, [[0.7, 0.3], [0.1, 0.9]], rtol=1e-6)


# -- how the walk is laid out ---------------------------------------------------------------------


@pytest.mark.parametrize("votes", ["any", "all"])
def test_trees_take_turns_where_there_are_many(
    xp: Backend, votes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = rng_of(votes)
    trees = [grown(rng, targets=3, votes=votes) for _ in range(11)]
    x = small_integers(rng, (10, 3), np.float32)
    known = with_ids(trees, missing=False) | {"n_targets": 3}
    monkeypatch.setattr(forest, "AT_ONCE", 10 * 3 * 2)
    y = run_ml(xp, "TreeEnsembleRegressor", x, opset=3, **known)
    np.testing.assert_allclose(y, scores(trees, x, 3), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("deep", "groups"), [(8, 4), (40, 1)])
def test_deep_trees_are_walked_apart_from_flat_ones(
    xp: Backend, deep: int, groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    grown_forests: list[forest.Forest] = []

    def noting(*arguments: Any) -> forest.Forest:
        grown_forests.append(forest.planted(*arguments))
        return grown_forests[-1]

    monkeypatch.setattr(nodes, "planted", noting)
    rng = rng_of(deep)
    trees = [grown(rng, depth=6 if i < deep else 1, targets=2) for i in range(40)]
    rng.shuffle(trees)
    x = small_integers(rng, (9, 3), np.float32, missing=0.2)
    y = run_ml(xp, "TreeEnsembleRegressor", x, opset=3, n_targets=2, **with_ids(trees))
    np.testing.assert_allclose(y, scores(trees, x, 2, "SUM"), rtol=1e-4, atol=1e-5)
    assert len(grown_forests[0].groups) == groups
    assert sum(len(group.roots) for group in grown_forests[0].groups) == len(trees)


def test_trees_that_each_vote_for_one_target_stand_in_its_column() -> None:
    rng = rng_of("columns")
    trees = [grown(rng) for _ in range(7)]
    known = with_ids(trees)
    known["target_ids"] = [tree % 3 for tree in known["target_treeids"]]
    x = small_integers(rng, (10, 3), np.float32)
    y = run_ml(HOST, "TreeEnsembleRegressor", x, opset=3, n_targets=3, **known)
    expected = np.stack([scores(trees[i::3], x, 1)[:, 0] for i in range(3)], axis=1)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(0, 3), (3,)])
def test_no_rows_and_a_single_one(xp: Backend, shape: tuple[int, ...]) -> None:
    trees = [grown(rng_of(shape)) for _ in range(3)]
    known = with_ids(trees) | {"n_targets": 1}
    x = np.ones(shape, np.float32)
    y = run_ml(xp, "TreeEnsembleRegressor", x, opset=3, **known)
    rows = x.reshape(-1, 3)
    assert y.shape == (len(rows), 1)
    np.testing.assert_allclose(y, scores(trees, rows, 1), rtol=1e-6)


def test_a_tree_may_be_a_leaf(xp: Backend) -> None:
    known: dict[str, Any] = {
        "nodes_treeids": [0, 1, 1, 1],
        "nodes_nodeids": [0, 5, 6, 7],
        "nodes_modes": ["LEAF", "BRANCH_GT", "LEAF", "LEAF"],
        "nodes_featureids": [0] * 4,
        "nodes_values": [0.0] * 4,
        "nodes_truenodeids": [0, 6, 0, 0],
        "nodes_falsenodeids": [0, 7, 0, 0],
        "target_treeids": [0, 1, 1],
        "target_nodeids": [0, 6, 7],
        "target_ids": [0, 0, 0],
        "target_weights": [100.0, 1.0, 2.0],
        "n_targets": 1,
    }
    x = np.asarray([[1], [-1]], np.float32)
    y = run_ml(xp, "TreeEnsembleRegressor", x, opset=3, **known)
    np.testing.assert_array_equal(y[:, 0], [101, 102])
    alone = {name: v[:1] if isinstance(v, list) else v for name, v in known.items()}
    y = run_ml(xp, "TreeEnsembleRegressor", x[:, :0], opset=3, **alone)
    np.testing.assert_array_equal(y[:, 0], [100, 100])


def test_tables_are_built_once_for_all_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    planted = nodes.planted
    monkeypatch.setattr(nodes, "planted", lambda *given: built.append(1) or planted(*given))
    known = with_ids([grown(rng_of("once"))]) | {"n_targets": 1}
    model = sardonyx.load(_model(known), backend="numpy")
    for rows in (2, 2, 5):
        model(np.zeros((rows, 3), np.float32))
    assert len(built) == 1


def _model(known: dict[str, Any]) -> Any:
    node = helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", **known)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy")
    graph = helper.make_graph([node], "forest", [x], [y])
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("ai.onnx.ml", 3)], ir_version=8
    )


# -- trees that are none --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"nodes_truenodeids": [0, 0, 0]}, "form a cycle"),
        ({"nodes_truenodeids": [9, 0, 0]}, "node 9 of tree 0, which is not defined"),
        ({"nodes_falsenodeids": [-1, 0, 0]}, "node -1 of tree 0"),
        ({"nodes_nodeids": [0, 1, 1]}, "defined twice"),
        ({"nodes_featureids": [0, 0]}, "elements each"),
        ({"nodes_featureids": [-1, 0, 0]}, "nodes_featureids has -1"),
        ({"nodes_featureids": [3, 0, 0]}, "the trees read 4"),
        ({"nodes_featureids": [2**62, 0, 0]}, "nodes_featureids has"),
        ({"nodes_modes": ["BRANCH_MEMBER", "LEAF", "LEAF"]}, "BRANCH_MEMBER"),
        ({"nodes_modes": ["LESS", "LEAF", "LEAF"]}, "LESS"),
        ({"nodes_treeids": [0, 1, 1]}, "which is not defined"),
        ({"target_ids": [0, 1]}, "from 0 to 0"),
        ({"target_ids": [0]}, "elements each"),
        ({"target_nodeids": [1, 5]}, "node 5 of tree 0"),
        ({"n_targets": 0}, "number of targets is 0"),
        ({"base_values": [1.0, 2.0]}, "base_values"),
        ({"aggregate_function": "MEAN"}, "MEAN"),
        ({"post_transform": "TANH"}, "TANH"),
        ({"nodes_missing_value_tracks_true": [1]}, "elements each"),
        ({"nodes_values_as_tensor": np.zeros(3)}, "are both present"),
        ({"nodes_treeids": []}, "elements each"),
    ],
)
def test_what_is_no_tree_is_refused(changed: dict[str, Any], told: str) -> None:
    known = with_ids([stump()]) | {"n_targets": 1} | changed
    with pytest.raises(sardonyx.SardonyxError, match=told):
        run_ml(HOST, "TreeEnsembleRegressor", np.zeros((1, 1), np.float32), opset=3, **known)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"nodes_trueleafs": [0]}, "form a cycle"),
        ({"nodes_truenodeids": [2]}, "nodes_truenodeids has 2"),
        ({"tree_roots": [1]}, "tree_roots has 1"),
        ({"tree_roots": []}, "no trees"),
        ({"nodes_modes": np.asarray([7], np.uint8)}, "nodes_modes has 7"),
        ({"nodes_modes": np.asarray([6], np.uint8)}, "has 0 sets"),
        ({"nodes_modes": np.asarray([0.5], np.float32)}, "must be integers"),
        ({"membership_values": np.asarray([1, np.nan], np.float32)}, "has 1 sets"),
        ({"leaf_targetids": [0, 4]}, "from 0 to 0"),
        ({"aggregate_function": 4}, "aggregate_function is 4"),
        ({"post_transform": -1}, "post_transform is -1"),
    ],
)
def test_what_is_no_ensemble_is_refused(changed: dict[str, Any], told: str) -> None:
    known = with_leaves([stump()], np.float32) | {"n_targets": 1} | changed
    with pytest.raises(sardonyx.SardonyxError, match=told):
        run_ml(HOST, "TreeEnsemble", np.zeros((1, 1), np.float32), **known)


@pytest.mark.parametrize("targets", [10**9, 10**18])
def test_scores_for_absurdly_many_targets_are_refused(targets: int) -> None:
    known = with_ids([stump()]) | {"n_targets": targets}
    known["target_ids"] = [0, targets - 1]
    with pytest.raises(sardonyx.LimitExceeded):
        run_ml(HOST, "TreeEnsembleRegressor", np.zeros((1, 1), np.float32), opset=3, **known)
