"""Safe text for messages: control characters are escaped and long names are shortened.

A model file can name its values with codes that clear a terminal, with line breaks that forge a log
line, or with ten million characters. All text from a file passes through here before it is shown.
"""

from __future__ import annotations

import re

# Maximum characters of one word or quoted name, and of a whole message.
LONGEST_NAME = 200
LONGEST_MESSAGE = 4000

_WORDS = re.compile(rf"\S{{{LONGEST_NAME + 1},}}")
_QUOTED = re.compile(rf"(?<!\w)'[^']{{{LONGEST_NAME + 1},}}'(?!\w)")


def printable(text: str, longest: int = LONGEST_MESSAGE) -> str:
    r"""Return `text` in at most `longest` characters, with escapes for invisible characters.

    Letters of all scripts and emoji are kept. Long names are shortened in the middle.

    >>> print(printable("line\x1b[2J\nnext"))
    line\x1b[2J\nnext
    >>> printable("a name of " + "very " * 1000 + "many words", 30)
    'a name of very...ry many words'
    """
    if len(text) <= LONGEST_NAME and text.isprintable():
        return text if len(text) <= longest else shortened(text, longest)
    # Shortened first, so that a huge text is cheap; one escape takes up to ten characters.
    text = shortened(text, 10 * longest)
    text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    for names in (_WORDS, _QUOTED):
        text = names.sub(lambda name: shortened(name[0], LONGEST_NAME), text)
    return shortened(text, longest)


def first_line(error: BaseException) -> str:
    r"""Return the first line of an error's text without a full stop, or the name of its type.

    >>> first_line(ValueError("too long.\nSee above."))
    'too long'
    """
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def shortened(text: str, longest: int) -> str:
    """Return a text of at most `longest` characters, without the middle of a longer one."""
    if len(text) <= longest:
        return text
    tail = (longest - 3) // 2
    return f"{text[: longest - 3 - tail]}...{text[len(text) - tail :]}"
