"""Signals with torch: Fourier transforms, complex numbers, spectrograms."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.nn import functional

from tests.zoo.entry import Entry
from tests.zoo.torch_exports import TORCHSCRIPT, Network, exports_of, function


def entries() -> Iterator[Entry]:
    torch.manual_seed(0)
    yield from exports_of([*_transforms(), *_complex(), *_spectrograms()])


def _signals(*sizes: int) -> list[dict[str, torch.Tensor]]:
    return [{"x": torch.randn(n, 16)} for n in sizes or (2, 3)]


def _transforms() -> Iterator[Network]:
    real = torch.view_as_real
    for norm in ("backward", "ortho", "forward"):
        yield function(
            f"fft {norm}", lambda x, norm=norm: real(torch.fft.fft(x, norm=norm)), *_signals()
        )
        yield function(
            f"rfft then irfft {norm}",
            lambda x, norm=norm: torch.fft.irfft(torch.fft.rfft(x, norm=norm) * 2, norm=norm),
            *_signals(),
        )
    yield function("rfft", lambda x: real(torch.fft.rfft(x)), *_signals())
    yield function("rfft of another length", lambda x: real(torch.fft.rfft(x, 20)), *_signals())
    yield function("ifft", lambda x: real(torch.fft.ifft(torch.fft.fft(x).conj())), *_signals())
    yield function("odd irfft", lambda x: torch.fft.irfft(torch.fft.rfft(x), 15), *_signals())
    yield function("fft2", lambda x: real(torch.fft.fft2(x)), *_signals(4))
    yield function(
        "rfft2 then irfft2", lambda x: torch.fft.irfft2(torch.fft.rfft2(x)), *_signals(4)
    )
    yield function("fftn", lambda x: torch.fft.fftn(x.reshape(-1, 4, 4)).abs(), *_signals())
    yield function("fftshift", lambda x: torch.fft.fftshift(torch.fft.fft(x).abs(), 1), *_signals())
    yield function("hfft", lambda x: torch.fft.hfft(torch.fft.rfft(x)), *_signals())
    yield function("fft over rows", lambda x: real(torch.fft.fft(x, dim=0)), *_signals(5))
    yield function("fourier mixing", lambda x: torch.fft.fft2(x).real, *_signals(5))
    yield function("convolution by fft", _convolved, *_signals())
    yield function("fft in float64", lambda x: torch.fft.rfft(x.double()).abs(), *_signals())


def _convolved(x: torch.Tensor) -> torch.Tensor:
    kernel = torch.linspace(0, 1, 16)
    return torch.fft.irfft(torch.fft.rfft(x, 32) * torch.fft.rfft(kernel, 32), 32)


def _complex() -> Iterator[Network]:
    yield function("magnitude and phase", _polar, *_signals())
    yield function(
        "complex product", lambda x: torch.view_as_real(_as_complex(x) ** 2), *_signals()
    )
    yield function("complex quotient", _quotient, *_signals())
    yield function("complex matmul", _complex_matmul, *_signals(4))
    yield function("rotary by complex numbers", _rotary, *_signals())
    yield function("complex exponential", _exponential, *_signals())
    yield function(
        "conjugate", lambda x: torch.view_as_real(_as_complex(x).conj().resolve_conj()), *_signals()
    )
    yield function("complex sum", lambda x: torch.view_as_real(_as_complex(x).sum(1)), *_signals())
    yield function("complex layouts", _layouts, *_signals())


def _as_complex(x: torch.Tensor) -> torch.Tensor:
    return torch.view_as_complex(x.reshape(-1, 8, 2))


def _polar(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    z = _as_complex(x)
    return z.abs(), z.angle()


def _quotient(x: torch.Tensor) -> torch.Tensor:
    z = _as_complex(x)
    return torch.view_as_real(z / (z + 1) - 2)


def _complex_matmul(x: torch.Tensor) -> torch.Tensor:
    z = _as_complex(x)
    return torch.view_as_real(z @ z.T)


def _rotary(x: torch.Tensor) -> torch.Tensor:
    turns = torch.polar(torch.ones(8), torch.arange(8) * 0.3)
    return torch.view_as_real(_as_complex(x) * turns).flatten(1)


def _exponential(x: torch.Tensor) -> torch.Tensor:
    return torch.exp(torch.complex(torch.zeros_like(x), x)).real


def _layouts(x: torch.Tensor) -> torch.Tensor:
    z = _as_complex(x)
    joined = torch.cat([z, z.flip(1)], 1)[:, ::2].unsqueeze(1).expand(-1, 2, -1)
    return torch.view_as_real(joined.transpose(1, 2).contiguous())


def _spectrograms() -> Iterator[Network]:
    sounds = [{"x": torch.randn(2, length)} for length in (64, 100)]
    window = torch.hann_window(16)
    for name, options in {
        "stft": {"center": False, "onesided": True},
        "stft centered": {"center": True, "onesided": True},
        "stft of both sides": {"center": False, "onesided": False},
        "stft normalized": {"center": True, "onesided": True, "normalized": True},
    }.items():
        yield function(
            name,
            lambda x, options=options: torch.view_as_real(
                torch.stft(x, 16, 4, window=window, return_complex=True, **options)
            ),
            *sounds,
        )
    yield function(
        "stft of one signal",
        lambda x: torch.stft(x[0], 16, 8, 12, window[:12], return_complex=True).abs(),
        *sounds,
    )
    yield function(
        "stft of real results",
        lambda x: torch.stft(x, 16, 4, window=window, center=False, return_complex=False),
        *sounds,
        exporters=(TORCHSCRIPT,),
    )
    yield function("mel spectrogram", _mel, *sounds)
    yield function("istft", _there_and_back, sounds[0])
    yield function("framed", lambda x: x.unfold(1, 16, 8) * window, *sounds)
    for name in ("hann", "hamming", "blackman"):
        yield function(
            f"{name}_window",
            lambda x, name=name: x[:, :20] * getattr(torch, f"{name}_window")(20),
            *sounds,
        )
    yield function("mu law", _mu_law, *sounds)
    yield function(
        "resampled", lambda x: functional.conv1d(x[:, None], window[None, None], stride=3), *sounds
    )


def _mel(x: torch.Tensor) -> torch.Tensor:
    spectrum = torch.stft(x, 16, 4, window=torch.hann_window(16), return_complex=True)
    mixed = torch.linspace(0, 1, 5)[:, None] * torch.linspace(1, 2, 9)
    return (mixed @ spectrum.abs().square()).clamp(min=1e-6).log10()


def _there_and_back(x: torch.Tensor) -> torch.Tensor:
    window = torch.hann_window(16)
    spectrum = torch.stft(x, 16, 4, window=window, return_complex=True)
    return torch.istft(spectrum, 16, 4, window=window, length=64)


def _mu_law(x: torch.Tensor) -> torch.Tensor:
    return ((x.clamp(-1, 1).sign() * torch.log1p(255 * x.abs()) / 5.55 + 1) * 127.5 + 0.5).to(
        torch.int64
    )
