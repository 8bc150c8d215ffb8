"""Speech and sound: spectrograms, encoders of waves, Whisper with its cache, vocoders."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from transformers.cache_utils import DynamicCache, EncoderDecoderCache

from tests.zoo.entry import Entry
from tests.zoo.torch_exports import Network, exports_of
from tests.zoo.torch_modules import Picked, images, scattered, signals, tokens

TIME = {0: "batch", 1: "time"}
LAYERS, HEADS, VOCABULARY = 2, 4, 60


class Spectrogram(nn.Module):
    """The logarithm of mel bands of a short-time Fourier transform, then convolutions."""

    def __init__(self, as_complex: bool) -> None:
        super().__init__()
        self.as_complex = as_complex
        self.bands = nn.Parameter(torch.rand(33, 12))
        self.register_buffer("window", torch.hann_window(64))
        self.head = nn.Sequential(
            nn.Conv1d(12, 8, 3, padding=1), nn.BatchNorm1d(8), nn.GELU(), nn.Conv1d(8, 5, 3, 2)
        )

    def forward(self, x: Tensor) -> Tensor:
        spectrum = torch.stft(x, 64, 16, 64, self.window, return_complex=self.as_complex)
        parts = torch.view_as_real(spectrum) if self.as_complex else spectrum
        power = parts.square().sum(-1)
        mel = power.transpose(1, 2) @ self.bands.abs()
        return self.head(torch.log10(mel.clamp(min=1e-10)).transpose(1, 2))


class Separator(nn.Module):
    """Conv-TasNet: a learned transform, a mask for each speaker, overlap and add."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Conv1d(1, 16, 8, stride=4, bias=False)
        self.mask = nn.Sequential(
            nn.GroupNorm(1, 16),
            nn.Conv1d(16, 16, 3, padding=2, dilation=2, groups=16),
            nn.PReLU(),
            nn.Conv1d(16, 32, 1),
        )
        self.decode = nn.ConvTranspose1d(16, 1, 8, stride=4, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        coded = F.relu(self.encode(x.unsqueeze(1)))
        masks = torch.sigmoid(self.mask(coded)).unflatten(1, (2, 16))
        apart = (coded.unsqueeze(1) * masks).flatten(0, 1)
        return self.decode(apart).unflatten(0, (-1, 2)).squeeze(2)


def voice_activity() -> nn.Module:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution = nn.Conv1d(1, 8, 16, stride=8)
            self.read = nn.GRU(8, 8, batch_first=True)
            self.out = nn.Linear(8, 1)

        def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
            steps = F.relu(self.convolution(x.unsqueeze(1))).transpose(1, 2)
            steps, state = self.read(steps, state)
            return torch.sigmoid(self.out(steps)).squeeze(-1), state

    return Recurrent()


SPEECH: Mapping[str, Any] = {
    "vocab_size": 20,
    "hidden_size": 32,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": 48,
    "conv_dim": [16, 16, 16],
    "conv_stride": [5, 2, 2],
    "conv_kernel": [10, 3, 2],
    "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 4,
    "classifier_proj_size": 16,
    "num_labels": 5,
    "apply_spec_augment": False,
}


class Masked(nn.Module):
    """A model of waves of which some are shorter than others."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_values: Tensor, attention_mask: Tensor) -> Tensor:
        return self.model(input_values=input_values, attention_mask=attention_mask).logits


def _ctc(name: str, stable: bool) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        norm = "layer" if stable else "group"
        config = getattr(transformers, f"{name}Config")(
            **SPEECH, do_stable_layer_norm=stable, feat_extract_norm=norm
        )
        return scattered(Masked(getattr(transformers, f"{name}ForCTC")(config)))

    return build


def _speech() -> Iterator[Network]:
    calls = []
    for batch, time in ((2, 400), (3, 521)):
        mask = torch.ones(batch, time, dtype=torch.int64)
        mask[0, time - 130 :] = 0
        calls.append({"input_values": signals(batch, time), "attention_mask": mask})
    axes = {"input_values": TIME, "attention_mask": TIME}
    for name, kind, stable in (
        ("wav2vec2", "Wav2Vec2", False),
        ("wav2vec2 stable", "Wav2Vec2", True),
        ("hubert", "Hubert", False),
        ("wavlm", "WavLM", False),
    ):
        yield Network(name, _ctc(kind, stable), calls, axes=axes)


def _ast() -> nn.Module:
    config = transformers.ASTConfig(
        hidden_size=32,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=48,
        patch_size=8,
        frequency_stride=6,
        time_stride=6,
        max_length=40,
        num_mel_bins=32,
        num_labels=5,
    )
    model = transformers.ASTForAudioClassification(config)
    return scattered(Picked(model, "logits", argument="input_values"))


def _whisper(attention: str = "sdpa") -> Any:
    config = transformers.WhisperConfig(
        vocab_size=VOCABULARY,
        num_mel_bins=16,
        encoder_layers=LAYERS,
        decoder_layers=LAYERS,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        d_model=32,
        max_source_positions=20,
        max_target_positions=24,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    kind = transformers.WhisperForConditionalGeneration
    return scattered(kind._from_config(config, attn_implementation=attention))


class Decoder(nn.Module):
    """Whisper's decoder without a cache."""

    def __init__(self, whisper: Any) -> None:
        super().__init__()
        self.decoder, self.out = whisper.model.decoder, whisper.proj_out

    def forward(self, input_ids: Tensor, encoded: Tensor) -> Tensor:
        results = self.decoder(
            input_ids=input_ids,
            # Without a mask, transformers looks for sequences packed into one.
            attention_mask=torch.ones_like(input_ids),
            encoder_hidden_states=encoded,
            use_cache=False,
        )
        return self.out(results.last_hidden_state)


class CachedDecoder(Decoder):
    """One step: keys and values of past tokens come in and go out, those of the sound come in."""

    def forward(
        self, input_ids: Tensor, encoded: Tensor, past: Tensor, sound: Tensor
    ) -> tuple[Tensor, Tensor]:
        own, across = DynamicCache(), DynamicCache()
        for layer in range(LAYERS):
            own.update(past[layer, 0], past[layer, 1], layer)
            across.update(sound[layer, 0], sound[layer, 1], layer)
        cache = EncoderDecoderCache(own, across)
        cache.is_updated = dict.fromkeys(range(LAYERS), True)
        results = self.decoder(
            input_ids=input_ids,
            encoder_hidden_states=encoded,
            past_key_values=cache,
            use_cache=True,
        )
        layers = results.past_key_values.self_attention_cache.layers
        present = torch.stack([torch.stack([each.keys, each.values]) for each in layers])
        return self.out(results.last_hidden_state), present


def _whisper_parts() -> Iterator[Network]:
    features = [{"x": signals(n, 16, 40)} for n in (2, 1)]
    for attention in ("sdpa", "eager"):

        def encoder(attention: str = attention) -> nn.Module:
            model = _whisper(attention).model.encoder
            return Picked(model, "last_hidden_state", argument="input_features")

        name = f"whisper encoder {attention}"
        yield Network(name, encoder, features, axes={"x": {0: "batch"}})
    plain, cached = [], []
    for batch, length in ((2, 3), (1, 7)):
        encoded = signals(batch, 20, 32)
        plain.append({"input_ids": tokens(VOCABULARY, batch, length), "encoded": encoded})
        cached.append(
            {
                "input_ids": tokens(VOCABULARY, batch, 1),
                "encoded": encoded,
                "past": signals(LAYERS, 2, batch, HEADS, length, 8),
                "sound": signals(LAYERS, 2, batch, HEADS, 20, 8),
            }
        )
    batch = {0: "batch"}
    ids = {0: "batch", 1: "length"}
    yield Network(
        "whisper decoder",
        lambda: Decoder(_whisper()),
        plain,
        axes={"input_ids": ids, "encoded": batch},
    )
    axes = {
        "input_ids": batch,
        "encoded": batch,
        "past": {2: "batch", 4: "past"},
        "sound": {2: "batch"},
    }
    outputs = ("logits", "present")
    yield Network(
        "whisper decoder with cache", lambda: CachedDecoder(_whisper()), cached, outputs, axes
    )


def _vocoder() -> nn.Module:
    config = transformers.SpeechT5HifiGanConfig(
        model_in_dim=8,
        upsample_initial_channel=16,
        upsample_rates=[4, 2],
        upsample_kernel_sizes=[8, 4],
        resblock_kernel_sizes=[3, 5],
        resblock_dilation_sizes=[[1, 3], [1, 3]],
    )
    return scattered(Spoken(transformers.SpeechT5HifiGan(config)))


class Spoken(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x)


class Coded(nn.Module):
    """EnCodec there and back: codes of a wave, and the wave of these codes."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        codes = self.model.quantizer.encode(self.model.encoder(x), 1.5)
        return codes, self.model.decoder(self.model.quantizer.decode(codes))


def _encodec() -> nn.Module:
    config = transformers.EncodecConfig(
        hidden_size=16,
        num_filters=4,
        upsampling_ratios=[4, 2],
        num_lstm_layers=1,
        codebook_size=32,
        sampling_rate=2400,
        target_bandwidths=[1.5, 3.0],
    )
    return scattered(Coded(transformers.EncodecModel(config)))


def networks() -> Iterator[Network]:
    waves = [{"x": signals(2, 400)}, {"x": signals(1, 533)}]
    for name, as_complex in (("spectrogram", True), ("spectrogram of pairs", False)):

        def spectrogram(as_complex: bool = as_complex) -> nn.Module:
            return scattered(Spectrogram(as_complex))

        yield Network(name, spectrogram, waves, axes={"x": TIME})
    yield Network("separator", lambda: scattered(Separator()), waves, axes={"x": TIME})
    states = [{**wave, "state": signals(1, len(wave["x"]), 8)} for wave in waves]
    yield Network(
        "voice activity",
        lambda: scattered(voice_activity()),
        states,
        ("y", "next"),
        {"x": TIME, "state": {1: "batch"}},
    )
    yield from _speech()
    bands = [{"x": images(n, 40, 32)} for n in (2, 3)]
    yield Network("ast", _ast, bands, axes={"x": {0: "batch"}})
    yield from _whisper_parts()
    mel = [{"x": signals(2, 12, 8)}, {"x": signals(1, 19, 8)}]
    yield Network("vocoder", _vocoder, mel, axes={"x": TIME})
    pieces = [{"x": signals(2, 1, 160)}, {"x": signals(1, 1, 240)}]
    yield Network("encodec", _encodec, pieces, ("codes", "y"), {"x": {0: "batch", 2: "time"}})


def entries() -> Iterator[Entry]:
    yield from exports_of(list(networks()))
