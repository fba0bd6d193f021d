"""Two rates from a few measurements."""

from collections.abc import Sequence

Point = tuple[float, float, float]
"""Two amounts of work, and the seconds that both took together."""
_ALIKE = 0.97
"""Above this squared cosine two amounts rise together: what each takes cannot be told apart."""


def two_rates(points: Sequence[Point], share: float = 0.0) -> tuple[float, float]:
    """Seconds per unit of both amounts, by least squares, neither below 0.

    Args:
        points: measurements.
        share: of the first amount in what both took, where they rise together.
    """
    xx, yy = sum(x * x for x, _, _ in points), sum(y * y for _, y, _ in points)
    xy = sum(x * y for x, y, _ in points)
    xs, ys = sum(x * s for x, _, s in points), sum(y * s for _, y, s in points)
    if xx == 0 or yy == 0:
        return (xs / xx if xx else 0.0, ys / yy if yy else 0.0)
    if xy * xy > _ALIKE * xx * yy:
        return share * xs / xx, (1 - share) * ys / yy
    determinant = xx * yy - xy * xy
    first, second = (xs * yy - ys * xy) / determinant, (ys * xx - xs * xy) / determinant
    if first >= 0 and second >= 0:
        return first, second
    return min(
        ((xs / xx, 0.0), (0.0, ys / yy)),
        key=lambda pair: sum((pair[0] * x + pair[1] * y - s) ** 2 for x, y, s in points),
    )
