"""`InferenceSession`: a model with onnxruntime's interface."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import onnx

from sardonyx.api import load
from sardonyx.backends.base import Backend
from sardonyx.compat.background import Background, Callback
from sardonyx.compat.binding import IOBinding
from sardonyx.compat.devices import OrtMemoryInfo
from sardonyx.compat.environment import Draws
from sardonyx.compat.exceptions import (
    Fail,
    ModelLoadCanceled,
    WrongType,
    named_as_onnxruntimes,
    refused,
)
from sardonyx.compat.feeds import Feeds, as_bytes, checked_names
from sardonyx.compat.nodes import Interface, ModelMetadata, NodeArg
from sardonyx.compat.options import RunOptions, SessionOptions
from sardonyx.compat.preparing import load_model, read
from sardonyx.compat.profiling import Profiler
from sardonyx.compat.providers import NO_FALLBACK_ENTRY, Placement, place
from sardonyx.compat.values import OrtValue
from sardonyx.errors import InvalidInput
from sardonyx.graph.calls.results import fresh
from sardonyx.graph.model.interface import CallOptions
from sardonyx.graph.model.model import Model
from sardonyx.stopping import Stopped, stop_if_asked, stoppable

# Keywords of onnxruntime's sessions. Those of `sardonyx.load` are taken too.
_KEYWORDS = ("enable_fallback", "read_config_from_model", "disabled_optimizers")
_OF_PROVIDERS = ("source", "backend", "device")


class InferenceSession:
    """A loaded model that runs as onnxruntime's sessions do.

    `providers` names backends and devices; see docs/onnxruntime.md. Other options of
    `sardonyx.load`, such as `ops=`, `cache=` or `checked=`, are taken as keywords. Threads may
    share a session. It can be pickled and copied.

    >>> import numpy as np
    >>> import sardonyx.compat as ort
    >>> session = ort.InferenceSession("examples/encoder.onnx", providers=["CPUExecutionProvider"])
    >>> session.get_inputs()[0]
    NodeArg(name='x', type='tensor(float)', shape=['batch', 'sequence', 48])
    >>> (y,) = session.run(None, {"x": np.zeros((1, 8, 48), np.float32)})
    >>> y.shape
    (1, 8, 48)
    """

    def __init__(
        self,
        path_or_bytes: str | bytes | os.PathLike[str] | onnx.ModelProto,
        sess_options: SessionOptions | None = None,
        providers: Sequence[str | tuple[str, dict[Any, Any]]] | None = None,
        provider_options: Sequence[dict[Any, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        self._falls_back = _is_on(kwargs.get("enable_fallback", 1))
        self._extra = _load_options(kwargs)
        self._source = path_or_bytes
        self._sess_options = SessionOptions.snapshot(sess_options)
        self._background = Background()
        self._load(providers, provider_options)

    def _load(self, providers: Any, provider_options: Any) -> None:
        """Place and load the model, and only then replace what was there before."""
        options = self._sess_options
        if options._canceled:
            raise ModelLoadCanceled(
                "The options say that no session is created: call "
                "set_load_cancellation_flag(False) first."
            )
        if providers is None and options.has_providers():
            providers = list(options._providers)
        found = read(self._source, options)
        placement = place(
            providers,
            provider_options,
            falls_back=self._falls_back,
            needs_device=options._entries.get(NO_FALLBACK_ENTRY) == "1",
        )
        profiler = None
        if options.enable_profiling:
            profiler = Profiler(options.profile_file_prefix, placement.provider)
        metadata = ModelMetadata.of(found.proto)
        interface = Interface.of(found.proto, infers=any(options._dimensions))
        with nullcontext() if profiler is None else profiler.noting("session_initialization"):
            model = load_model(found, placement.backend, options, self._extra)
        self._model: Model = model
        self._backend: Backend = placement.backend
        self._placement: Placement = placement
        self._profiler = profiler
        self._metadata = metadata
        self._interface = interface
        self._feeds = Feeds(interface)
        self._output_names = [arg.name for arg in interface.outputs]
        self._draws = Draws()

    # -- what the model is ------------------------------------------------------------------------

    def get_inputs(self) -> list[NodeArg]:
        """Return the inputs that each call must pass."""
        return list(self._interface.inputs)

    def get_outputs(self) -> list[NodeArg]:
        """Return the outputs."""
        return list(self._interface.outputs)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Return the inputs that have a default."""
        return list(self._interface.overridable)

    def get_modelmeta(self) -> ModelMetadata:
        """Return who wrote the model, and its version."""
        return self._metadata

    def get_session_options(self) -> SessionOptions:
        """Return the options of the session."""
        return self._sess_options

    # -- where it runs ----------------------------------------------------------------------------

    def get_providers(self) -> list[str]:
        """Return the provider that runs the model, and the one behind it."""
        return list(self._placement.providers)

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Return the options of each provider."""
        return self._placement.provider_options

    def set_providers(
        self,
        providers: Sequence[str | tuple[str, dict[Any, Any]]] | None = None,
        provider_options: Sequence[dict[Any, Any]] | None = None,
    ) -> None:
        """Load the model anew, on another provider."""
        self._load(providers, provider_options)

    def enable_fallback(self) -> None:
        """Let `set_providers` skip providers that nobody knows."""
        self._falls_back = True

    def disable_fallback(self) -> None:
        """Let `set_providers` refuse providers that nobody knows."""
        self._falls_back = False

    def get_input_memory_infos(self) -> list[OrtMemoryInfo]:
        """Return where the inputs are expected: calls take arrays of any device."""
        return [OrtMemoryInfo("Cpu") for _ in self._interface.inputs]

    def get_output_memory_infos(self) -> list[OrtMemoryInfo]:
        """Return where `run` has the outputs: on the CPU."""
        return [OrtMemoryInfo("Cpu") for _ in self._interface.outputs]

    def get_input_epdevices(self) -> list[None]:
        """Return no device of a plugin for each input: sardonyx has none."""
        return [None for _ in self._interface.inputs]

    def get_provider_graph_assignment_info(self) -> list[Any]:
        """Refuse: programs belong to one provider as a whole."""
        raise refused(
            "An assignment of nodes to providers is", "the whole model runs on get_providers()[0]"
        )

    # -- calls ------------------------------------------------------------------------------------

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> list[Any]:
        """Run the model, and return the named outputs, or all with None.

        They are arrays of NumPy that belong to the caller, lists for sequences and dicts for maps.
        """
        feeds = self._feeds.checked(input_feed)
        names = checked_names(output_names, self._output_names)
        outputs = self._outputs(names, feeds, run_options, to_numpy=True)
        return [as_bytes(fresh(value)) for value in outputs]

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callback,
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """Run the model in another thread, which then calls `callback(results, user_data, error)`.

        The error is a message, empty if there is none; with an error there are no results. Inputs
        must not change until then.
        """
        if not callable(callback):
            raise WrongType(f"The callback is {callback!r:.200}: pass a function.")
        self._feeds.require(input_feed)
        call = partial(self.run, output_names, dict(input_feed), run_options)
        self._background.run(call, callback, user_data)

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """Run the model on values, and return values."""
        feeds = self._feeds.checked(input_dict_ort_values)
        names = checked_names(output_names, self._output_names)
        outputs = self._outputs(names, feeds, run_options, to_numpy=True)
        return [OrtValue._of(fresh(value)) for value in outputs]

    def io_binding(self) -> IOBinding:
        """Return inputs and outputs to bind to memory."""
        return IOBinding(self)

    def run_with_iobinding(
        self, iobinding: IOBinding, run_options: RunOptions | None = None
    ) -> None:
        """Run the model on bound inputs and outputs."""
        if not isinstance(iobinding, IOBinding):
            raise WrongType(f"The binding is a {type(iobinding).__name__}: use io_binding().")
        if iobinding._session is not self:
            raise InvalidInput("The binding belongs to another session: use its io_binding().")
        iobinding._run(run_options)

    def run_with_ortvaluevector(
        self,
        run_options: RunOptions | None,
        feed_names: Sequence[str],
        feeds: Sequence[OrtValue],
        fetch_names: Sequence[str],
        fetches: Any,
        fetch_devices: Any,
    ) -> None:
        """Run the model on values, and add its outputs to the vector `fetches`."""
        named = dict(zip(feed_names, feeds, strict=True))
        for value in self.run_with_ort_values(fetch_names, named, run_options):
            fetches.push_back(value)

    def _outputs(
        self,
        names: Sequence[str],
        feeds: Mapping[str, Any],
        run_options: Any,
        *,
        to_numpy: bool,
    ) -> list[Any]:
        """Return the outputs of a call whose arguments were checked."""
        profiler, is_stopped = self._profiler, _stop_of(run_options)
        with named_as_onnxruntimes():
            if run_options is None and profiler is None:
                return self._computed(names, feeds, to_numpy=to_numpy)
            try:
                with stoppable(is_stopped), _noted(profiler, feeds):
                    outputs = self._computed(names, feeds, to_numpy=to_numpy)
                    stop_if_asked()
                    return outputs
            except Stopped:
                raise Fail(
                    "The call ended because 'terminate' of its run options is True: set it to "
                    "False for further calls."
                ) from None

    def _computed(
        self, names: Sequence[str], feeds: Mapping[str, Any], *, to_numpy: bool
    ) -> list[Any]:
        key = self._draws.key()
        options = CallOptions(None if key is None else self._backend.key(key))
        outputs = self._model._run_call_for((), feeds)((), feeds, options, to_numpy=to_numpy)
        if list(names) == self._output_names:
            return list(outputs)
        values = dict(zip(self._output_names, outputs, strict=True))
        return [values[name] for name in names]

    def create_ortvalue_from_shape_and_type(
        self,
        shape: Sequence[int],
        element_type: Any,
        device_type: str,
        device_id: int = 0,
        vendor_id: int = -1,
    ) -> OrtValue:
        """Return a value of zeros on a device."""
        return OrtValue.ortvalue_from_shape_and_type(shape, element_type, device_type, device_id)

    # -- profiling --------------------------------------------------------------------------------

    def end_profiling(self) -> str:
        """Write the trace of a session with `enable_profiling`, and return the file's name."""
        return "" if self._profiler is None else self._profiler.end(self._model)

    def get_profiling_start_time_ns(self) -> int:
        """Return when profiling began, in nanoseconds; 0 without profiling."""
        return 0 if self._profiler is None else self._profiler.start_ns

    # -- what other providers have ----------------------------------------------------------------

    def get_tuning_results(self) -> list[Any]:
        """Return nothing: compilers tune their programs themselves."""
        return []

    def set_tuning_results(self, results: Any, *, error_on_invalid: bool = False) -> None:
        """Do nothing: compilers tune their programs themselves."""

    def set_ep_dynamic_options(self, options: Mapping[str, str]) -> None:
        """Refuse options that change while a session runs."""
        raise refused(
            "Changing options of a provider are", "create a session, or call set_providers"
        )

    def release_captured_graph(self, graph_annotation_id: int = 0) -> None:
        """Do nothing: captured graphs belong to the backend."""

    # -- names that programs read, although they are private in onnxruntime -----------------------

    @property
    def _model_path(self) -> str | None:
        source = self._source
        return os.fspath(source) if isinstance(source, (str, os.PathLike)) else None

    @property
    def _model_bytes(self) -> bytes | None:
        return self._source if isinstance(self._source, bytes) else None

    @property
    def _inputs_meta(self) -> list[NodeArg]:
        return self.get_inputs()

    @property
    def _outputs_meta(self) -> list[NodeArg]:
        return self.get_outputs()

    @property
    def _providers(self) -> list[str]:
        return self.get_providers()

    def __repr__(self) -> str:
        return f"<InferenceSession on {self._placement.provider}: {self._model!r}>"


def _is_on(value: Any) -> bool:
    """Return whether `enable_fallback` is 1."""
    try:
        return int(value) == 1
    except (TypeError, ValueError):
        raise InvalidInput(f"'enable_fallback' is {value!r:.100}: pass 1 or 0.") from None


def _stop_of(run_options: Any) -> Callable[[], bool]:
    if run_options is None:
        return lambda: False
    if not hasattr(run_options, "terminate"):
        raise WrongType(
            f"The options of a call are a {type(run_options).__name__}: pass RunOptions()."
        )
    return lambda: bool(run_options.terminate)


def _noted(profiler: Profiler | None, feeds: Mapping[str, Any]) -> Any:
    if profiler is None:
        return nullcontext()
    profiler.note_feeds(feeds)
    return profiler.noting("model_run")


def _load_options(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords that are options of `sardonyx.load`; warn of those that nobody takes."""
    taken = inspect.signature(load).parameters
    chosen = {}
    for name, value in keywords.items():
        if name in taken and name not in _OF_PROVIDERS:
            chosen[name] = value
        elif name not in _KEYWORDS:
            warnings.warn(
                f"InferenceSession takes no '{name}', so it has no effect, as in onnxruntime. "
                "Options are passed as sess_options.",
                stacklevel=4,
            )
    return chosen
