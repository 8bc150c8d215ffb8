"""Text for people out of names that a file holds: nothing in it moves the cursor or has no end.

A model may name its values as it likes: with the codes that clear a terminal, with line breaks
that forge a line of a log, with ten million characters. What is shown of it passes through here.
"""

from __future__ import annotations

import re

# Characters: of a word or of what stands in quotes, as names do, and of a whole message.
LONGEST_NAME = 200
LONGEST_MESSAGE = 4000

_WORDS = re.compile(rf"\S{{{LONGEST_NAME + 1},}}")
_QUOTED = re.compile(rf"(?<!\w)'[^']{{{LONGEST_NAME + 1},}}'(?!\w)")


def printable(text: str, longest: int = LONGEST_MESSAGE) -> str:
    r"""`text` in at most `longest` characters, with escapes for all that is not to be seen.

    Letters of all scripts and emoji stay. Long names are shortened in the middle.

    >>> print(printable("line\x1b[2J\nnext"))
    line\x1b[2J\nnext
    >>> printable("a name of " + "very " * 1000 + "many words", 30)
    'a name of very...ry many words'
    """
    if len(text) <= LONGEST_NAME and text.isprintable():
        return text if len(text) <= longest else shortened(text, longest)
    # Escapes take up to ten characters each; of a text without end not all need be escaped.
    text = shortened(text, 10 * longest)
    text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    for names in (_WORDS, _QUOTED):
        text = names.sub(lambda name: shortened(name[0], LONGEST_NAME), text)
    return shortened(text, longest)


def shortened(text: str, longest: int) -> str:
    """The beginning and the end of a text that is longer than this."""
    if len(text) <= longest:
        return text
    tail = (longest - 3) // 2
    return f"{text[: longest - 3 - tail]}...{text[len(text) - tail :]}"
