"""One self-contained page: data, style and scripts in a single file, without network."""

from __future__ import annotations

import html
import json
import re
from functools import cache
from importlib.resources import files
from typing import Any

from sardonyx.display.graph_view.picture import Picture

# In the order of their imports; the page has them as one module.
SCRIPTS = (
    "graph.js",
    "levels.js",
    "layered.js",
    "layout.js",
    "scene.js",
    "colours.js",
    "camera.js",
    "labels.js",
    "painter.js",
    "elements.js",
    "panel.js",
    "search.js",
    "keyboard.js",
    "theme.js",
    "main.js",
)
_IMPORTS = re.compile(r"^import .*?;\n", re.MULTILINE | re.DOTALL)
_EXPORTS = re.compile(r"^export ", re.MULTILINE)
_PLACES = re.compile(r"\{\{(\w+)\}\}")
_MAP = re.compile(r"^//# sourceMappingURL=.*$", re.MULTILINE)

# Nothing is loaded: scripts and style are those in the page itself.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: "
    "blob:; base-uri 'none'; form-action 'none'"
)


def page(picture: Picture) -> str:
    """Return the whole page as HTML."""
    parts = {
        "policy": _POLICY,
        "title": html.escape(picture.title),
        "style": _asset("style.css"),
        "library": _MAP.sub("", _asset("dagre.min.js")),
        "licence": _asset("dagre.LICENSE.txt"),
        "script": _script(),
        "data": in_script(picture.as_json()),
    }
    # In one pass, so that a name such as {data} in a model stays text.
    return _PLACES.sub(lambda place: parts[place[1]], _asset("page.html"))


def in_script(data: Any) -> str:
    r"""Return JSON that no HTML parser takes for markup.

    >>> in_script("</script>")
    '"\\u003c/script>"'
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")


@cache
def notebook_script() -> str:
    """Return the script that tells frames in a notebook whether its theme is light or dark."""
    return f"<script>{_asset('notebook.js')}</script>"


@cache
def _script() -> str:
    """Return the modules joined into one, without the imports between them."""
    parts = (_asset(name) for name in SCRIPTS)
    return "\n".join(_EXPORTS.sub("", _IMPORTS.sub("", part)) for part in parts)


@cache
def _asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
