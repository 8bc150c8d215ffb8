"""The NumPy dtypes that many ops name."""

from __future__ import annotations

import numpy as np

FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
INT32, INT64 = np.dtype(np.int32), np.dtype(np.int64)
BOOL, UINT8, UINT64 = np.dtype(bool), np.dtype(np.uint8), np.dtype(np.uint64)
