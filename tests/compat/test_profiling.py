"""The trace of a session: its name, its form, and its contents."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import ModuleType

import pytest

import sardonyx.compat
from tests.compat.pairs import FEEDS, both_modules, same, session


@both_modules
def test_a_session_writes_a_trace(
    ort: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = "trace"
    loaded = session(ort, sess_options=options)
    for _ in range(2):
        loaded.run(None, FEEDS)
    assert loaded.get_profiling_start_time_ns() > 0
    name = loaded.end_profiling()
    assert re.fullmatch(r"trace_\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_\d{3}\.json", name)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert loaded.end_profiling() == ""
    events = json.loads((tmp_path / name).read_text())
    assert all({"cat", "name", "ph", "ts", "dur", "pid", "tid", "args"} <= set(e) for e in events)
    names = [event["name"] for event in events]
    assert "session_initialization" in names
    assert names.count("model_run") == 2
    nodes = [event for event in events if event["cat"] == "Node"]
    assert {event["args"]["op_name"] for event in nodes} == {"Add", "Mul"}
    assert {event["args"]["provider"] for event in nodes} == {"CPUExecutionProvider"}
    assert all(event["name"].endswith("_kernel_time") for event in nodes)
    loaded.run(None, FEEDS)


def test_without_profiling_there_is_no_trace() -> None:
    same(lambda ort: session(ort).end_profiling())
    same(lambda ort: session(ort).get_profiling_start_time_ns())


def test_a_trace_without_a_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = sardonyx.compat.SessionOptions()
    options.enable_profiling = True
    name = session(sardonyx.compat, sess_options=options).end_profiling()
    assert [e["name"] for e in json.loads(Path(name).read_text())] == ["session_initialization"]
