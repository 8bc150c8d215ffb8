"""What onnxruntime has and sardonyx has not: each says what to do instead, when it is used."""

from __future__ import annotations

from typing import Any, NoReturn

from sardonyx.compat.exceptions import refused


class SparseTensor:
    """Refused: onnxruntime's sparse tensors."""

    def __init__(self, *_arguments: Any) -> None:
        _refuse_sparse()

    @classmethod
    def sparse_coo_from_numpy(cls, *_arguments: Any, **_options: Any) -> NoReturn:
        """Refuse a sparse tensor."""
        _refuse_sparse()

    @classmethod
    def sparse_csr_from_numpy(cls, *_arguments: Any, **_options: Any) -> NoReturn:
        """Refuse a sparse tensor."""
        _refuse_sparse()

    @classmethod
    def blocksparse_from_numpy(cls, *_arguments: Any, **_options: Any) -> NoReturn:
        """Refuse a sparse tensor."""
        _refuse_sparse()


def _refuse_sparse() -> NoReturn:
    raise refused("Sparse tensors are", "pass dense arrays")


def _refuse_adapter() -> NoReturn:
    raise refused(
        "Onnxruntime's files of adapters are",
        "assign the weights to model.params, or see sardonyx.apply_overlays",
    )


class LoraAdapter:
    """Refused: onnxruntime's files of adapters."""

    def Load(self, path: Any) -> NoReturn:  # noqa: N802  (onnxruntime's name)
        """Refuse a file of an adapter."""
        _refuse_adapter()


class AdapterFormat:
    """Refused: onnxruntime's files of adapters."""

    @staticmethod
    def read_adapter(file_path: Any) -> NoReturn:
        """Refuse a file of an adapter."""
        _refuse_adapter()

    def export_adapter(self, file_path: Any) -> NoReturn:
        """Refuse a file of an adapter."""
        _refuse_adapter()

    def set_parameters(self, params: Any) -> NoReturn:
        """Refuse the weights of an adapter."""
        _refuse_adapter()

    def get_parameters(self) -> NoReturn:
        """Refuse the weights of an adapter."""
        _refuse_adapter()


class ModelCompiler:
    """Refused: compiled models of other runtimes."""

    def __init__(self, *_arguments: Any, **_options: Any) -> None:
        raise refused(
            "Compiled models of other runtimes are",
            "use sardonyx.export, or a cache with `sardonyx compile`",
        )


class OrtArenaCfg:
    """Settings of an allocator; without effect, as the array libraries have their own."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments
