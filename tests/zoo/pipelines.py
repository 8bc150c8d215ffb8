"""Pipelines of scikit-learn from columns of strings and numbers, and from text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from skl2onnx.common.data_types import StringTensorType
from sklearn import (
    compose,
    ensemble,
    feature_extraction,
    feature_selection,
    impute,
    linear_model,
    preprocessing,
)
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.pipeline import make_pipeline, make_union

from tests.zoo.entry import Entry
from tests.zoo.tabular import Fitted, classes, grid, target

ROWS = grid(60)
Y, THREE = target(ROWS), classes(ROWS)
CALLS = [ROWS[:20], ROWS[20:21]]
NAMES = np.asarray(["über", "", "low"])
PLAIN = {"zipmap": False}


def tables(rows: int) -> pd.DataFrame:
    """Return columns of both kinds; some categories are seen in later rows only."""
    rng = np.random.default_rng(1)
    cities = np.asarray(["Köln", "東京", "", "Rome", "rome ", "Lima"], object)
    sizes = np.asarray(["S", "M", "L"], object)
    numbers = grid(rows, 2, seed=3)
    return pd.DataFrame({
        "city": pd.Series(cities[rng.integers(0, 6, rows)], dtype=object),
        "size": pd.Series(sizes[rng.integers(0, 3, rows)], dtype=object),
        "width": numbers[:, 0],
        "height": np.where(rng.random(rows) < 0.2, np.nan, numbers[:, 1]).astype(np.float32),
        "count": rng.integers(-3, 4, rows),
    })  # fmt: skip


TABLE = tables(60)
CITIES, SIZES = TABLE[["city"]].to_numpy(), TABLE[["size"]].to_numpy()
WORDS = TABLE[["city", "size"]].to_numpy()
UNKNOWN = np.asarray([["nowhere"], ["köln"], [""], ["Köln"]], object)
TEXTS = np.asarray(
    [
        "The quick brown fox jumps over the lazy dog.",
        "the dog, the DOG and the fox!",
        "a b c a b",
        "naïve café déjà vu",
        "It's over 9000: quick-quick.",
        "",
        "   spaces   and\ttabs\nand lines ",
        "fox fox fox fox",
    ],
    object,
)
UNSEEN_TEXTS = np.asarray(["", "unseen words only", "the fox", "CAFÉ ça"], object)


# -- tables ---------------------------------------------------------------------------------------


def tables_of_columns() -> Iterator[Fitted]:
    one_hot = preprocessing.OneHotEncoder(handle_unknown="ignore")
    filled = make_pipeline(impute.SimpleImputer(), preprocessing.StandardScaler())
    columns = [("words", one_hot, ["city", "size"]), ("numbers", filled, ["width", "height"])]
    for rest in ("drop", "passthrough"):
        mixed = compose.ColumnTransformer(columns, remainder=rest)
        calls = [TABLE[:20], TABLE[20:21]]
        fit = make_pipeline(mixed, linear_model.LogisticRegression()).fit
        yield Fitted(f"columns, the rest {rest}", _fit(fit, TABLE, THREE), calls, PLAIN)
    mixed = compose.ColumnTransformer(columns)
    trees = make_pipeline(mixed, ensemble.RandomForestClassifier(3, max_depth=3, random_state=0))
    calls = [TABLE[:20], TABLE[20:21]]
    yield Fitted("columns, a forest", _fit(trees.fit, TABLE, NAMES[THREE]), calls, PLAIN)


def encoders() -> Iterator[Fitted]:
    def encoded(name: str, encoder: Any, rows: np.ndarray, *more: np.ndarray) -> Fitted:
        return Fitted(name, _fit(encoder.fit, rows, Y), [rows[:20], rows[20:21], *more])

    one_hot, ordinal = preprocessing.OneHotEncoder, preprocessing.OrdinalEncoder
    ignoring = one_hot(handle_unknown="ignore")
    yield encoded("OneHotEncoder strings", ignoring, CITIES, UNKNOWN)
    yield encoded("OneHotEncoder two columns", one_hot(), WORDS)
    yield encoded("OneHotEncoder drop first", one_hot(drop="first"), WORDS)
    yield encoded("OneHotEncoder infrequent", one_hot(min_frequency=9), CITIES)
    integers = np.round(ROWS[:, :2] * 2).astype(np.int64)
    unknown = np.asarray([[99, 0], [-1, 99]])
    yield encoded("OneHotEncoder int64", one_hot(handle_unknown="ignore"), integers, unknown)
    floats = integers.astype(np.float32)
    yield encoded("OneHotEncoder float32", one_hot(handle_unknown="ignore"), floats)
    yield encoded("OrdinalEncoder strings", ordinal(), WORDS)
    marked = ordinal(handle_unknown="use_encoded_value", unknown_value=-1)
    yield encoded("OrdinalEncoder unknown", marked, CITIES, UNKNOWN)
    yield encoded("OrdinalEncoder int64", ordinal(), integers)
    yield encoded("TargetEncoder strings", preprocessing.TargetEncoder(), WORDS)
    labels = TABLE["city"].to_numpy()
    yield Fitted("LabelEncoder", _fit(preprocessing.LabelEncoder().fit, labels), [labels[:9]])
    binary = preprocessing.LabelBinarizer()
    yield Fitted("LabelBinarizer", _fit(binary.fit, THREE), [THREE[:9], THREE[:1]])
    holes = np.where(np.arange(240).reshape(60, 4) % 5, ROWS, np.nan).astype(np.float32)
    for strategy in ("mean", "median", "most_frequent", "constant"):
        imputer = impute.SimpleImputer(strategy=strategy)
        yield encoded(f"SimpleImputer {strategy}", imputer, holes)
    marks = impute.SimpleImputer(missing_values=0, strategy="constant", fill_value=7)
    yield encoded("SimpleImputer int64", marks, integers)
    words = impute.SimpleImputer(missing_values="", strategy="most_frequent")
    yield encoded("SimpleImputer strings", words, CITIES, UNKNOWN)
    yield encoded("KNNImputer", impute.KNNImputer(n_neighbors=2), holes)


def features() -> Iterator[Fitted]:
    def made(name: str, transformer: Any, *, ends: bool = True) -> Fitted:
        model = make_pipeline(transformer, linear_model.Ridge()) if ends else transformer
        return Fitted(name, _fit(model.fit, ROWS, Y), CALLS)

    bins = preprocessing.KBinsDiscretizer
    for encode in ("ordinal", "onehot-dense"):
        for strategy in ("uniform", "quantile", "kmeans"):
            each = bins(3, encode=encode, strategy=strategy, subsample=None)
            yield made(f"KBinsDiscretizer {encode} {strategy}", each)
    yield made("PolynomialFeatures", preprocessing.PolynomialFeatures(3))
    crossed = preprocessing.PolynomialFeatures(interaction_only=True, include_bias=False)
    yield made("PolynomialFeatures interactions", crossed)
    chosen = feature_selection.SelectKBest(k=2)
    yield made("selection and scaling", make_pipeline(chosen, preprocessing.MinMaxScaler()))
    both = make_union(preprocessing.MinMaxScaler(clip=True), preprocessing.Normalizer("l1"))
    yield made("union", both)
    for norm in ("l1", "l2", "max"):
        yield made(f"Normalizer {norm}", preprocessing.Normalizer(norm), ends=False)
    yield made("PowerTransformer", preprocessing.PowerTransformer(), ends=False)
    yield made("FunctionTransformer", preprocessing.FunctionTransformer(), ends=False)


# -- text -----------------------------------------------------------------------------------------


def texts() -> Iterator[Fitted]:
    flat = [("X", StringTensorType([None]))]

    def read(name: str, vectorizer: Any, *, types: Any = flat, ends: bool = False) -> Fitted:
        model = vectorizer
        if ends:
            model = make_pipeline(vectorizer, linear_model.LogisticRegression())
        fit = _fit(model.fit, TEXTS, np.arange(len(TEXTS)) % 2)
        calls = [TEXTS, UNSEEN_TEXTS, TEXTS[:1]]
        kind = type(vectorizer)
        options_of = {kind: {"locale": "C"}} if kind in (CountVectorizer, TfidfVectorizer) else {}
        return Fitted(name, fit, calls, PLAIN if ends else {}, options_of, types=types)

    yield read("CountVectorizer", CountVectorizer())
    yield read("CountVectorizer binary", CountVectorizer(binary=True))
    yield read("CountVectorizer two words", CountVectorizer(ngram_range=(1, 2)))
    yield read("CountVectorizer pairs", CountVectorizer(ngram_range=(2, 3)))
    yield read("CountVectorizer stop words", CountVectorizer(stop_words=["the", "and"]))
    yield read("CountVectorizer cased", CountVectorizer(lowercase=False))
    yield read("CountVectorizer characters", CountVectorizer(analyzer="char", ngram_range=(1, 3)))
    bounded = CountVectorizer(analyzer="char_wb", ngram_range=(2, 3))
    yield read("CountVectorizer bounded characters", bounded)
    short = CountVectorizer(token_pattern="[a-z]+")
    yield read("CountVectorizer pattern", short)
    yield read("TfidfVectorizer", TfidfVectorizer())
    sub = TfidfVectorizer(sublinear_tf=True, norm="l1", smooth_idf=False)
    yield read("TfidfVectorizer sublinear", sub)
    yield read("TfidfVectorizer without norm", TfidfVectorizer(norm=None, use_idf=False))
    characters = TfidfVectorizer(analyzer="char", ngram_range=(2, 2))
    yield read("TfidfVectorizer characters", characters)
    yield read("TfidfVectorizer two words", TfidfVectorizer(ngram_range=(1, 2)), ends=True)
    yield read("TfidfVectorizer unicode accents", TfidfVectorizer(strip_accents="unicode"))
    hashed = feature_extraction.text.HashingVectorizer(n_features=16)
    yield read("HashingVectorizer", hashed)
    hasher = feature_extraction.FeatureHasher(8, input_type="string", alternate_sign=True)
    fit = _fit(hasher.fit, WORDS)
    yield Fitted("FeatureHasher", fit, [WORDS[:9], WORDS[9:10]], sourced=False)


def _fit(fit: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
    return lambda: fit(*arguments)


def entries() -> Iterator[Entry]:
    for family in (tables_of_columns, encoders, features, texts):
        yield from (each.entry() for each in family())
