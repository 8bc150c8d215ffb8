"""Load a model, run it and print its program: `python examples/quickstart.py`."""

from pathlib import Path

import numpy as np

import sardonyx

folder = Path(__file__).parent
model = sardonyx.load(folder / "encoder.onnx")
print(model)

x = np.load(folder / "encoder.npz")["0/in/x"]
y = model(x)
print(f"{x.dtype}{list(x.shape)} in, {y.dtype}{list(y.shape)} out")

print()
print(model.trace(x))
