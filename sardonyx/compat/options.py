"""`SessionOptions` and `RunOptions`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from sardonyx.compat.choices import ExecutionMode, ExecutionOrder, GraphOptimizationLevel
from sardonyx.compat.exceptions import RefusedCall, WrongType, refused, require_text
from sardonyx.compat.fields import FieldValues, choice, switch, text, whole_number
from sardonyx.compat.values import OrtValue
from sardonyx.errors import InvalidInput


class SessionOptions(FieldValues):
    """How a session loads and runs its model.

    Attributes without effect are accepted; docs/onnxruntime.md lists them.

    >>> options = SessionOptions()
    >>> options.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL
    >>> options.intra_op_num_threads
    0
    """

    __slots__ = ("_canceled", "_dimensions", "_external", "_files", "_initializers", "_providers")

    _title: ClassVar[str] = "session options"

    enable_cpu_mem_arena = switch(True, "Without effect.")
    enable_mem_pattern = switch(True, "Without effect.")
    enable_mem_reuse = switch(True, "Without effect.")
    enable_profiling = switch(False, "Whether `end_profiling` writes a trace of the session.")
    execution_mode = choice(ExecutionMode.ORT_SEQUENTIAL, "Without effect.")
    execution_order = choice(ExecutionOrder.DEFAULT, "Without effect.")
    graph_optimization_level = choice(
        GraphOptimizationLevel.ORT_ENABLE_ALL,
        "Whether steps are fused: ORT_DISABLE_ALL is `rewrites=False` of `sardonyx.load`.",
    )
    inter_op_num_threads = whole_number(0, "Without effect.")
    intra_op_num_threads = whole_number(0, "The number of threads of a CPU; 0 is the default.")
    log_severity_level = whole_number(-1, "Without effect.")
    log_verbosity_level = whole_number(0, "Without effect.")
    logid = text("", "Without effect.")
    optimized_model_filepath = text("", "Refused when a session is created.")
    profile_file_prefix = text("onnxruntime_profile_", "What the trace's file name begins with.")
    use_deterministic_compute = switch(
        False, "Whether each call returns the same bits: `compile='now'` of `sardonyx.load`."
    )
    use_per_session_threads = switch(True, "Without effect.")

    def __init__(self) -> None:
        super().__init__()
        # Sizes of free dimensions, by name and by denotation.
        self._dimensions: tuple[dict[str, int], dict[str, int]] = ({}, {})
        self._initializers: dict[str, OrtValue] = {}
        self._external: dict[str, OrtValue] = {}
        # Files of external data, by name.
        self._files: dict[str, bytes] = {}
        self._providers: list[tuple[str, dict[str, str]]] = []
        self._canceled = False

    # -- entries ----------------------------------------------------------------------------------

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Add an entry; those without effect are accepted.

        >>> options = SessionOptions()
        >>> options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        >>> options.get_session_config_entry("session.intra_op.allow_spinning")
        '0'
        """
        self._add_entry(key, value)

    def get_session_config_entry(self, key: str) -> str:
        """Return the value of an entry."""
        return self._entry(key)

    # -- the model --------------------------------------------------------------------------------

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Give all free dimensions of this name a size."""
        self._dimensions[0][_name(name)] = _size(size)

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """Give all free dimensions of this denotation a size."""
        self._dimensions[1][_name(denotation)] = _size(size)

    def add_initializer(self, name: str, value: OrtValue) -> None:
        """Use this value in place of an initializer of that name, where a model has one."""
        self._initializers[_name(name)] = _tensor(value)

    def add_external_initializers(self, names: Sequence[str], values: Sequence[OrtValue]) -> None:
        """Use these values in place of initializers whose data lies in other files."""
        if len(names) != len(values):
            raise RefusedCall(
                f"There are {len(names)} names and {len(values)} values of external initializers: "
                "pass one value for each name."
            )
        self._external.update(
            (_name(name), _tensor(value)) for name, value in zip(names, values, strict=True)
        )

    def add_external_initializers_from_files_in_memory(
        self, names: Sequence[str], contents: Sequence[Any], lengths: Sequence[int]
    ) -> None:
        """Use these contents in place of the files of external data with these names."""
        if not len(names) == len(contents) == len(lengths):
            raise RefusedCall(
                f"There are {len(names)} names, {len(contents)} contents and {len(lengths)} "
                "lengths of files: pass as many of each."
            )
        for name, content, length in zip(names, contents, lengths, strict=True):
            self._files[_name(name)] = bytes(memoryview(content).cast("B")[:length])

    def register_custom_ops_library(self, path: str) -> None:
        """Refuse a library of operators; `InferenceSession(..., ops=[...])` takes Python ones."""
        require_text(path=path)
        raise refused(
            f"The library {path!r:.200} of operators is",
            "write them in Python with @sardonyx.op, and pass InferenceSession(..., ops=[...])",
        )

    # -- providers --------------------------------------------------------------------------------

    def add_provider(self, name: str, options: Mapping[str, str]) -> None:
        """Add a provider, for sessions that name none themselves."""
        require_text(name=name)
        if not isinstance(options, Mapping):
            raise WrongType(f"The options of a provider are {options!r:.100}: pass a dict.")
        self._providers.append((name, {str(k): str(v) for k, v in options.items()}))

    def has_providers(self) -> bool:
        """Return whether a provider was added."""
        return bool(self._providers)

    def add_provider_for_devices(self, devices: Any, options: Any) -> None:
        """Refuse devices of plugins."""
        raise refused("Devices of plugins are", "name a provider, with device_id in its options")

    def set_provider_selection_policy(self, policy: Any) -> None:
        """Refuse a policy."""
        raise refused("A policy that selects providers is", "name them with providers=[...]")

    def set_provider_selection_policy_delegate(self, delegate: Any) -> None:
        """Refuse a policy."""
        raise refused("A policy that selects providers is", "name them with providers=[...]")

    def set_ep_context_data_read_func(self, read: Any, max_data_size: int) -> None:
        """Refuse compiled models of other runtimes."""
        raise refused("Data of compiled models of other runtimes is", "load the ONNX model")

    def clear_ep_context_data_read_func(self) -> None:
        """Do nothing: there is no such function."""

    def set_load_cancellation_flag(self, is_canceled: bool) -> None:
        """Let the creation of a session with these options fail."""
        self._canceled = bool(is_canceled)

    # -- what a session does with them ------------------------------------------------------------

    @classmethod
    def snapshot(cls, options: Any) -> SessionOptions:
        """Return a copy of options, which may be onnxruntime's own, or the defaults for None."""
        new = cls()
        if options is None:
            return new
        if isinstance(options, SessionOptions):
            new._values.update(options._values)
            new._entries.update(options._entries)
            new._dimensions[0].update(options._dimensions[0])
            new._dimensions[1].update(options._dimensions[1])
            new._initializers.update(options._initializers)
            new._external.update(options._external)
            new._files.update(options._files)
            new._providers.extend(options._providers)
            new._canceled = options._canceled
            return new
        if not hasattr(options, "graph_optimization_level"):
            raise WrongType(
                f"The options of a session are a {type(options).__name__}: pass SessionOptions()."
            )
        for name in cls.field_names():
            if hasattr(options, name):
                setattr(new, name, getattr(options, name))
        return new

    def load_options(self) -> dict[str, Any]:
        """Return what `sardonyx.load` is passed for these options."""
        chosen: dict[str, Any] = {}
        if self.graph_optimization_level == GraphOptimizationLevel.ORT_DISABLE_ALL:
            chosen["rewrites"] = False
        if self.use_deterministic_compute:
            chosen["compile"] = "now"
        return chosen


class RunOptions(FieldValues):
    """How one call runs.

    Set `terminate` in another thread to end the calls that run with these options: they raise
    `Fail` at the next step or segment, and at the latest when they would return.

    >>> options = RunOptions()
    >>> options.terminate
    False
    """

    __slots__ = ()

    _title: ClassVar[str] = "run options"

    log_severity_level = whole_number(-1, "Without effect.")
    log_verbosity_level = whole_number(0, "Without effect.")
    logid = text("", "Without effect.")
    only_execute_path_to_fetches = switch(False, "Without effect.")
    terminate = switch(False, "Whether calls with these options end.")

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Add an entry; all are accepted, without effect."""
        self._add_entry(key, value)

    def get_run_config_entry(self, key: str) -> str:
        """Return the value of an entry."""
        return self._entry(key)

    def add_active_adapter(self, adapter: Any) -> None:
        """Refuse an adapter."""
        raise refused(
            "Adapters are", "assign weights to model.params, or see sardonyx.apply_overlays"
        )


def _name(name: Any) -> str:
    require_text(name=name)
    return str(name)


def _size(size: Any) -> int:
    if isinstance(size, bool) or not isinstance(size, (int, np.integer)):
        raise WrongType(f"A dimension is {size!r:.100}: pass a whole number.")
    if size < 0:
        raise InvalidInput(f"A dimension is {size}: pass a whole number of at least 0.")
    return int(size)


def _tensor(value: Any) -> OrtValue:
    if not isinstance(value, OrtValue) or not value.is_tensor():
        raise RefusedCall(
            f"An initializer is a {type(value).__name__}: pass OrtValue.ortvalue_from_numpy(array)."
        )
    return value
