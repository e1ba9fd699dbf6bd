"""Linear and Poisson regression under a flat prior, where the mode is the maximum likelihood."""

from benchmarks.fits import measure
from benchmarks.runner import Call, Row

TITLE = "Linear and Poisson regression, n = 10,000, d = 10: mode and covariance"
PEERS = {"linear": "statsmodels OLS", "Poisson": "statsmodels GLM"}


def rows(quick: bool) -> list[Row]:
    """The comparisons: small enough to be the same in a quick run."""

    def by(way, kind):
        return Call(measure, (way, kind, 10_000, 10))

    return [
        Row(f"{kind}, {which} fit", by("laplacebook", kind), by("statsmodels", kind), peer, which)
        for kind, peer in PEERS.items()
        for which in ("first", "next")
    ]
