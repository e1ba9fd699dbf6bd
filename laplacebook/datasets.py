"""The measured data of the book, shipped with the package so that no chapter needs the network.

Each function returns named NumPy arrays and says where the numbers come from and why they may be
shipped: numbers printed in a publication are facts.
"""

import csv
from importlib.resources import files
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

__all__ = ["ORings", "RadiataPine", "o_rings", "radiata_pine"]

#: strength, density and adjusted density of specimen 9 in each copy of the pine data
_SPECIMEN_9 = {"bugs": (3160.0, 27.1, 26.3), "friel_wyse": (3670.0, 32.3, 29.0)}


class RadiataPine(NamedTuple):
    """Strength and density of 42 specimens of radiata pine, each of shape (42,)."""

    strength: Float[np.ndarray, " N"]
    density: Float[np.ndarray, " N"]
    adjusted_density: Float[np.ndarray, " N"]


class ORings(NamedTuple):
    """Temperature and O-ring distress of 23 flights of the space shuttle, each of shape (23,)."""

    temperature: Float[np.ndarray, " N"]
    distress: Float[np.ndarray, " N"]


def radiata_pine(copy: str = "bugs") -> RadiataPine:
    """Strength of 42 specimens of radiata pine, and two densities that could predict it.

    The measurements are from E. J. Williams, *Regression Analysis* (Wiley, 1959), and have been a
    test of estimators of the evidence since Carlin and Chib (1995), doi:10.1111/j.2517-6161.1995.tb02042.x,
    and Han and Carlin (2001), doi:10.1198/016214501753208780. They are numbers printed in these
    publications, and so facts. Two copies circulate, which differ in specimen 9 alone:

    - ``"bugs"``: strength 3160, densities 27.1 and 26.3, as in the example "Pines" of BUGS;
    - ``"friel_wyse"``: strength 3670, densities 32.3 and 29.0, nearly those of specimen 13. The
      exact log evidences -310.1283 and -301.7046 that are quoted since Friel and Wyse (2012),
      doi:10.1111/j.1467-9574.2011.00515.x, come out with this copy and not with the other.

    Which of them is Williams's we cannot say: we have not seen his book.

    Args:
        copy: ``"bugs"`` or ``"friel_wyse"``.

    Returns:
        ``strength``: maximum compressive strength parallel to the grain, lb/in^2, shape (42,).
        ``density``: lb/ft^3, shape (42,).
        ``adjusted_density``: density without the resin, lb/ft^3, shape (42,).

    Raises:
        ValueError: there is no such copy.

    >>> radiata_pine().strength[:3]
    array([3040., 2470., 3610.])
    """
    if copy not in _SPECIMEN_9:
        raise ValueError(f"copy must be one of {list(_SPECIMEN_9)}, not {copy!r}")
    columns = _columns("radiata_pine.csv")
    columns[:, 8] = _SPECIMEN_9[copy]
    return RadiataPine(*columns)


def o_rings() -> ORings:
    """Whether O-rings of the booster rockets were found damaged, and how cold the launch had been.

    The 23 flights before the last one of Challenger (28 January 1986) after which the rockets were
    recovered, by temperature. The numbers are public: Report of the Presidential Commission on the
    Space Shuttle Challenger Accident (1986); analysed by Dalal, Fowlkes and Hoadley (1989),
    doi:10.1080/01621459.1989.10478858.

    Returns:
        ``temperature``: of the air at launch, degrees Fahrenheit, shape (23,).
        ``distress``: 1 if erosion or blow-by was found at one O-ring or more, else 0, shape (23,).

    >>> flights = o_rings()
    >>> flights.temperature[flights.distress == 1]
    array([53., 57., 58., 63., 70., 70., 75.])
    """
    return ORings(*_columns("o_rings.csv"))


def _columns(name: str) -> Float[np.ndarray, "C N"]:
    """The numbers of a file below its header, one row of the result for each column."""
    text = files("laplacebook").joinpath("data", name).read_text(encoding="utf-8")
    return np.array(list(csv.reader(text.splitlines()))[1:], float).T
