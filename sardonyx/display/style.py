"""The style sheet of all displays.

It fits light and dark pages, because it names no colour for text or background: text inherits the
page's colour, lines and shades are grey with little opacity, and bars have a colour that is seen on
both. So no theme has to be detected, in whichever notebook. The class occurs twice in each rule
because notebooks style tables too, with rules that would otherwise weigh more.
"""

from __future__ import annotations

# The colours of bars, in order. Each has a contrast of at least 3 to white and to black.
COLOURS = ("#3b7dd8", "#c2652a", "#2f8f5b", "#9a63c9", "#b0862a", "#8a8f98")

_LINE = "rgba(128,128,128,.28)"
_SHADE = "rgba(128,128,128,.10)"
_MONOSPACE = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"

# Selectors within the box, and what holds for them.
_RULES = {
    "": "font:13px/1.45 system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;color:inherit;"
    "max-width:1100px;overflow-x:auto;text-align:left;padding:2px 0",
    " .sx-title": "font-weight:600;font-size:14px;margin:0 0 6px",
    " .sx-muted": "opacity:.68;font-weight:400",
    " code": f"font-family:{_MONOSPACE};font-size:12px;background:none;color:inherit;padding:0;"
    "border:0;overflow-wrap:break-word",
    " table": "border-collapse:collapse;border:0;margin:2px 0 8px;width:auto;display:table;"
    "font-size:12.5px;color:inherit;table-layout:auto",
    " tr:nth-child(n)": "background:none;border:0",
    " tbody tr:hover": f"background:{_SHADE}",
    " th": "font-weight:500;opacity:.68;text-align:left;padding:2px 14px 2px 0;border:0;"
    f"border-bottom:1px solid {_LINE};white-space:nowrap;background:none;color:inherit",
    " td": "text-align:left;padding:2px 14px 2px 0;border:0;vertical-align:top;max-width:640px;"
    "overflow-wrap:break-word;background:none;color:inherit;white-space:normal",
    " tr>.sx-number": "text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap",
    " .sx-facts td:first-child": "opacity:.68;white-space:nowrap",
    " details": f"margin:1px 0;padding:0 0 0 12px;border-left:1px solid {_LINE};background:none",
    ">details": "padding-left:0;border-left:0;margin:3px 0",
    ">details>*:not(summary)": "margin-left:14px",
    " summary": "cursor:pointer;list-style:revert;display:list-item;padding:1px 0;"
    "overflow-wrap:anywhere",
    " summary:hover": f"background:{_SHADE}",
    " .sx-leaf": "padding:1px 0 1px 13px;overflow-wrap:anywhere",
    " p": "margin:2px 0 6px",
    " .sx-bar": f"height:9px;min-width:1px;border-radius:2px;background:{COLOURS[0]};opacity:.9",
    " .sx-track": f"width:180px;background:{_SHADE};border-radius:2px;margin-top:5px",
    " .sx-stack": "display:flex;height:16px;max-width:640px;border-radius:3px;overflow:hidden;"
    f"background:{_SHADE};margin:4px 0 6px",
    " .sx-key": "display:inline-block;width:10px;height:10px;border-radius:2px;margin-right:6px",
}

STYLE = "".join(f".sardonyx.sardonyx{selector}{{{rule}}}" for selector, rule in _RULES.items())
