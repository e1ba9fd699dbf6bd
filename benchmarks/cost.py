"""How the time of a fit grows with the number of observations, and with that of parameters."""

from benchmarks.fits import measure
from benchmarks.runner import Call, Row

TITLE = "Logistic regression of growing size, the next fit"


def rows(quick: bool) -> list[Row]:
    """The comparisons, with scikit-learn, which gives the mode alone."""
    observations = (1_000, 100_000) if quick else (1_000, 10_000, 100_000, 1_000_000)
    parameters = (10, 100) if quick else (1, 10, 100, 300, 1_000)
    sizes = [(n, 20) for n in observations] + [(2_000, d) for d in parameters]

    def by(way, size):
        return Call(measure, (way, "logistic", *size))

    against = "scikit-learn newton-cholesky, mode alone"
    return [
        Row(
            f"n = {n:,}, d = {d:,}",
            by("laplacebook", (n, d)),
            by("scikit_learn", (n, d)),
            against,
            "next",
        )
        for n, d in sizes
    ]
