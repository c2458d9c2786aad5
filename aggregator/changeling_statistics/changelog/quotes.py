"""A quote that nobody closed: it takes the rows behind it into one field, up to the next quote, without an error.

Text of several lines is good CSV, so the lines of a field are looked at: one that would be a row by itself was
swallowed.
"""

from collections.abc import Callable, Sequence


def swallows_rows(row: Sequence[str], is_row: Callable[[Sequence[str]], bool]) -> bool:
    """Whether a field of this row holds a line that has as many fields as the row itself, and could be one.

    row: as it was read. is_row: says of the fields of such a line whether they could be a row.
    """
    lines = (line for field in row if "\n" in field for line in field.split("\n")[1:])
    return any(
        len(fields) == len(row) and is_row(fields) for fields in (line.rstrip("\r").split(",") for line in lines)
    )
