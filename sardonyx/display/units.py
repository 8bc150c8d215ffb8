"""Numbers, sizes and times for people."""

from __future__ import annotations

_UNITS = ("kB", "MB", "GB", "TB", "PB", "EB")
_FACTORS = ("", "k", "M", "G", "T", "P", "E")


def bytes_text(count: int) -> str:
    """Return a number of bytes in three or four digits.

    >>> [bytes_text(n) for n in (0, 999, 1536, 438_000_000)]
    ['0 B', '999 B', '1.54 kB', '438 MB']
    """
    size = float(count)
    if abs(size) < 1000:
        return f"{count} B"
    power = 0
    while abs(size) >= 999.5 and power < len(_UNITS):
        size /= 1000
        power += 1
    return f"{size:.3g} {_UNITS[power - 1]}"


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun.

    >>> counted(1, "node"), counted(1200, "node"), counted(2, "index", "indices")
    ('1 node', '1,200 nodes', '2 indices')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def more_text(number: int) -> str:
    """Return the note that stands for `number` entries that are left out.

    >>> more_text(9960)
    '… 9,960 more'
    """
    return f"… {number:,} more"


def short(number: float) -> str:
    """Return a number with a unit.

    >>> short(1_540_000), short(12)
    ('1.54 M', '12')
    """
    power = 0
    while number >= 999.5 and power < len(_FACTORS) - 1:
        number, power = number / 1000, power + 1
    return f"{number:.3g} {_FACTORS[power]}".rstrip()


def duration(seconds: float) -> str:
    """Return a duration with a unit.

    >>> duration(0.00123), duration(2e-7)
    ('1.23 ms', '0.2 us')
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} us"
