"""Recurrent networks with torch: stacks, packed sequences, cells in loops, attention, decoders."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tests.zoo.entry import Entry
from tests.zoo.torch_exports import DYNAMO, TORCHSCRIPT, Network, changing_axes, exports_of

INPUT, HIDDEN, VOCABULARY = 8, 12, 20
KINDS = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}

Calls = Sequence[Mapping[str, torch.Tensor]]


def entries() -> Iterator[Entry]:
    torch.manual_seed(0)
    networks = [*_stacks(), *_states(), *_packed(), *_cells(), *_models()]
    yield from exports_of(networks)


def _network(
    name: str,
    build: Callable[[], nn.Module],
    calls: Calls,
    exporters: Sequence[str] = (DYNAMO, TORCHSCRIPT),
    opset: int | None = None,
) -> Iterator[Network]:
    """Yield a network by each exporter: dynamo writes the traced length into files of LSTM."""
    for exporter in exporters:
        own = calls if exporter == TORCHSCRIPT else [c for c in calls if _is_as_long(calls[0], c)]
        axes = changing_axes(own)
        yield Network(name, build, own, ("result",), axes, exporters=(exporter,), opset=opset)


def _is_as_long(first: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> bool:
    """Return whether at most one axis of the first input differs, which is that of the batch."""
    x, y = next(iter(first.values())), next(iter(other.values()))
    return sum(a != b for a, b in zip(x.shape, y.shape, strict=True)) <= 1


def _sequences(*shapes: tuple[int, int]) -> Calls:
    return [{"x": torch.randn(*shape, INPUT)} for shape in shapes]


class Whole(nn.Module):
    """A recurrent layer of torch, with its last states, which are a tuple for LSTM."""

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y, state = self.layer(x)
        return (y, *state) if isinstance(state, tuple) else (y, state)


def _stacks() -> Iterator[Network]:
    variants: dict[str, dict[str, object]] = {
        "": {},
        " of two layers": {"num_layers": 2},
        " bidirectional": {"bidirectional": True, "num_layers": 2},
        " batch first": {"batch_first": True, "bidirectional": True},
        " without bias": {"bias": False, "num_layers": 3},
    }
    for (kind, layer), (variant, options) in product(KINDS.items(), variants.items()):
        yield from _network(
            kind + variant,
            lambda layer=layer, options=options: Whole(layer(INPUT, HIDDEN, **options)),
            _sequences((5, 2), (5, 3), (9, 3))
            if "batch first" not in variant
            else _sequences((2, 5), (3, 5), (3, 9)),
        )
    yield from _network(
        "rnn with relu",
        lambda: Whole(nn.RNN(INPUT, HIDDEN, nonlinearity="relu")),
        _sequences((6, 2)),
    )
    yield from _network(
        "lstm with projection",
        lambda: Whole(nn.LSTM(INPUT, HIDDEN, 2, proj_size=4)),
        _sequences((5, 2), (5, 1), (7, 3)),
    )
    yield from _network(
        "lstm of one sequence",
        lambda: Whole(nn.LSTM(INPUT, HIDDEN)),
        [{"x": torch.randn(6, INPUT)}],
    )
    yield from _network(
        "lstm in float64",
        lambda: Whole(nn.LSTM(INPUT, HIDDEN).double()),
        [{"x": torch.randn(length, 2, INPUT, dtype=torch.float64)} for length in (4, 6)],
    )
    for opset in (11, 14, 17):
        yield from _network(
            f"gru of opset {opset}",
            lambda: Whole(nn.GRU(INPUT, HIDDEN, 2, bidirectional=True)),
            _sequences((5, 2), (8, 1)),
            exporters=(TORCHSCRIPT,),
            opset=opset,
        )


class Continued(nn.Module):
    """A layer that starts from states which the caller passes."""

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> list[torch.Tensor]:
        if isinstance(self.layer, nn.LSTM):
            y, (h, c) = self.layer(x, (h, c))
            return [y, h, c]
        return list(self.layer(x, h + c))


def _states() -> Iterator[Network]:
    def call(length: int, batch: int) -> dict[str, torch.Tensor]:
        states = {name: torch.randn(2, batch, HIDDEN) for name in "hc"}
        return {"x": torch.randn(length, batch, INPUT), **states}

    for kind, layer in KINDS.items():
        yield from _network(
            f"{kind} with states",
            lambda layer=layer: Continued(layer(INPUT, HIDDEN, 2)),
            [call(4, 2), call(4, 1), call(1, 3)],
        )


class Packed(nn.Module):
    """Sequences of several lengths, as nn.utils.rnn packs them."""

    def __init__(self, layer: nn.RNNBase, enforce_sorted: bool = True) -> None:
        super().__init__()
        self.layer, self.enforce_sorted = layer, enforce_sorted

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, ...]:
        packed = pack_padded_sequence(x, lengths, self.layer.batch_first, self.enforce_sorted)
        y, state = self.layer(packed)
        y, lengths = pad_packed_sequence(y, self.layer.batch_first)
        return (y, lengths, *(state if isinstance(state, tuple) else (state,)))


def _packed() -> Iterator[Network]:
    def call(*lengths: int) -> dict[str, torch.Tensor]:
        x = torch.randn(max(lengths), len(lengths), INPUT)
        return {"x": x, "lengths": torch.tensor(lengths)}

    for kind, layer in KINDS.items():
        yield from _network(
            f"packed {kind}",
            lambda layer=layer: Packed(layer(INPUT, HIDDEN, bidirectional=True)),
            [call(6, 4, 1), call(5, 2, 2)],
        )
    yield from _network(
        "packed lstm of two layers", lambda: Packed(nn.LSTM(INPUT, HIDDEN, 2)), [call(5, 3, 2)]
    )
    yield from _network(
        "packed gru in any order",
        lambda: Packed(nn.GRU(INPUT, HIDDEN), enforce_sorted=False),
        [call(2, 5, 3)],
    )


class Unrolled(nn.Module):
    """A cell, called once for each of a fixed number of steps."""

    def __init__(self, cell: nn.RNNCellBase) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states = [torch.zeros(x.shape[1], HIDDEN)] * (
            2 if isinstance(self.cell, nn.LSTMCell) else 1
        )
        results = []
        for step in range(4):
            state = tuple(states) if len(states) == 2 else states[0]
            found = self.cell(x[step], state)
            states = list(found) if isinstance(found, tuple) else [found]
            results.append(states[0])
        return torch.stack(results)


def lstm_steps(
    x: torch.Tensor, by_input: torch.Tensor, by_state: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    """Compute an LSTM step by step, for as many steps as the input has."""
    h = torch.zeros(x.size(1), by_state.size(1))
    c = torch.zeros(x.size(1), by_state.size(1))
    results = torch.jit.annotate(list[torch.Tensor], [])
    for step in range(x.size(0)):
        gates = x[step] @ by_input.t() + h @ by_state.t() + bias
        enters, forgets, value, shows = gates.chunk(4, 1)
        c = torch.sigmoid(forgets) * c + torch.sigmoid(enters) * torch.tanh(value)
        h = torch.sigmoid(shows) * torch.tanh(c)
        results.append(h)
    return torch.stack(results)


class SteppedLstm(nn.Module):
    """The weights of an LSTMCell, in a loop that torch scripts: it cannot export scripted cells."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(INPUT, HIDDEN)
        self.steps = torch.jit.script(lstm_steps)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        bias = self.cell.bias_ih + self.cell.bias_hh
        return self.steps(x, self.cell.weight_ih, self.cell.weight_hh, bias)


def greedy_tokens(
    state: torch.Tensor, table: torch.Tensor, mix: torch.Tensor, head: torch.Tensor
) -> torch.Tensor:
    """Return tokens, each of which is fed back, until the third of the vocabulary or the 12th."""
    token = torch.zeros(1, dtype=torch.int64)
    tokens = torch.zeros(1, dtype=torch.int64)
    running = True
    while running:
        state = torch.tanh(torch.cat([table[token], state], 1) @ mix.t())
        token = torch.argmax(state @ head.t(), 1)
        tokens = torch.cat([tokens, token])
        running = bool(token[0] != 3) and tokens.size(0) < 12
    return tokens


class Translator(nn.Module):
    """An encoder, and a scripted greedy decoder on its last state."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, INPUT)
        self.encoder = nn.GRU(INPUT, HIDDEN, batch_first=True)
        self.mix = nn.Linear(INPUT + HIDDEN, HIDDEN)
        self.head = nn.Linear(HIDDEN, VOCABULARY)
        self.decode = torch.jit.script(greedy_tokens)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        state = self.encoder(self.embed(ids))[1][0] * 4
        return self.decode(state, self.embed.weight, self.mix.weight * 3, self.head.weight)


def _cells() -> Iterator[Network]:
    fixed = _sequences((4, 2), (4, 5))
    yield from _network("lstm cell unrolled", lambda: Unrolled(nn.LSTMCell(INPUT, HIDDEN)), fixed)
    yield from _network("gru cell unrolled", lambda: Unrolled(nn.GRUCell(INPUT, HIDDEN)), fixed)
    yield from _network("rnn cell unrolled", lambda: Unrolled(nn.RNNCell(INPUT, HIDDEN)), fixed)
    scripted = (TORCHSCRIPT,)
    yield from _network(
        "lstm cell in a loop",
        SteppedLstm,
        _sequences((4, 2), (7, 1)),
        exporters=scripted,
    )
    yield from _network(
        "greedy translator",
        Translator,
        [{"ids": torch.randint(VOCABULARY, (1, length))} for length in (5, 9)],
        exporters=scripted,
    )


class Attentive(nn.Module):
    """LSTM over words, attention over its results, a class."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, INPUT, padding_idx=0)
        self.lstm = nn.LSTM(INPUT, HIDDEN, batch_first=True, bidirectional=True)
        self.score = nn.Linear(2 * HIDDEN, 1)
        self.classify = nn.Linear(2 * HIDDEN, 3)

    def forward(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y, _ = self.lstm(self.embed(ids))
        scores = self.score(torch.tanh(y)).masked_fill(ids.unsqueeze(-1) == 0, -1e9)
        weights = torch.softmax(scores * 5, 1)
        return self.classify((weights * y).sum(1)), weights


class Tagger(nn.Module):
    """Characters by convolution, words by GRU, a tag for each: argmax of log-probabilities."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, INPUT)
        self.convolve = nn.Conv1d(INPUT, HIDDEN, 3, padding=1)
        self.gru = nn.GRU(HIDDEN, HIDDEN, 2, batch_first=True, bidirectional=True, dropout=0.3)
        self.head = nn.Linear(2 * HIDDEN, 5)

    def forward(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.convolve(self.embed(ids).transpose(1, 2)).relu().transpose(1, 2)
        y, _ = self.gru(x)
        scores = self.head(y * 4).log_softmax(-1)
        return scores, scores.argmax(-1)


class Teacher(nn.Module):
    """An encoder and a decoder that reads the true words and attends to the encoder's results."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, INPUT)
        self.encoder = nn.LSTM(INPUT, HIDDEN, batch_first=True)
        self.decoder = nn.LSTM(INPUT, HIDDEN, batch_first=True)
        self.head = nn.Linear(2 * HIDDEN, VOCABULARY)

    def forward(self, ids: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        memory, state = self.encoder(self.embed(ids))
        y, _ = self.decoder(self.embed(words), state)
        weights = torch.softmax(torch.bmm(y * 6, memory.transpose(1, 2)), -1)
        return self.head(torch.cat([y, torch.bmm(weights, memory)], -1))


class Forecast(nn.Module):
    """The last state of a stack, normalized, as time series are forecast."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(INPUT, HIDDEN, 2, batch_first=True)
        self.norm = nn.LayerNorm(HIDDEN)
        self.head = nn.Sequential(nn.Linear(HIDDEN, 8), nn.GELU(), nn.Linear(8, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, (h, _) = self.lstm(x)
        return self.head(self.norm(h[-1] + y[:, -1]))


def _models() -> Iterator[Network]:
    texts = [{"ids": torch.randint(VOCABULARY, shape)} for shape in ((2, 6), (3, 6), (3, 9))]
    yield from _network("attention over lstm", Attentive, texts)
    yield from _network("tagger", Tagger, texts)
    pairs = [call | {"words": torch.randint(VOCABULARY, (len(call["ids"]), 4))} for call in texts]
    yield from _network("encoder and decoder", Teacher, pairs)
    yield from _network("forecast", Forecast, _sequences((2, 6), (3, 6), (3, 10)))
