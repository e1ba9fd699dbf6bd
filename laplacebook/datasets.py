"""The measured data of the book, shipped with the package so that no chapter needs the network.

Each function returns named NumPy arrays and says where the numbers come from and why they may be
shipped: numbers printed in a publication are facts.
"""

import csv
from importlib.resources import files
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

__all__ = [
    "BreastCancer",
    "Iris",
    "ORings",
    "RadiataPine",
    "breast_cancer",
    "iris",
    "o_rings",
    "radiata_pine",
]

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


class Iris(NamedTuple):
    """Measurements of 150 iris flowers of three species."""

    measurements: Float[np.ndarray, "N 4"]
    species: Int[np.ndarray, " N"]


class BreastCancer(NamedTuple):
    """Ten measurements of cell nuclei from each of 569 tumours, and which were malignant."""

    measurements: Float[np.ndarray, "N 10"]
    malignant: Float[np.ndarray, " N"]


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

    In the book: :doc:`/book/model-comparison`.

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

    In the book: :doc:`/book/logistic-regression`.

    Returns:
        ``temperature``: of the air at launch, degrees Fahrenheit, shape (23,).
        ``distress``: 1 if erosion or blow-by was found at one O-ring or more, else 0, shape (23,).

    >>> flights = o_rings()
    >>> flights.temperature[flights.distress == 1]
    array([53., 57., 58., 63., 70., 70., 75.])
    """
    return ORings(*_columns("o_rings.csv"))


def iris() -> Iris:
    """Sepals and petals of three species of iris, measured by Edgar Anderson.

    The numbers are those that R. A. Fisher printed (1936), doi:10.1111/j.1469-1809.1936.tb02137.x,
    and so facts. The copy that R has, not that of the UCI repository, in which two flowers differ.

    In the book: :doc:`/book/structured-curvature`.

    Returns:
        ``measurements``: sepal length, sepal width, petal length, petal width, cm, shape (150, 4).
        ``species``: 0 setosa, 1 versicolor, 2 virginica, shape (150,).

    >>> flowers = iris()
    >>> flowers.measurements[flowers.species == 2].mean(axis=0).round(2)
    array([6.59, 2.97, 5.55, 2.03])
    """
    *measurements, species = _columns("iris.csv")
    return Iris(np.column_stack(measurements), species.astype(int))


def breast_cancer() -> BreastCancer:
    """Cell nuclei of 569 breast tumours as seen in a fine needle aspirate.

    The means over the nuclei of one digitised image each, from the Wisconsin diagnostic data of
    W. H. Wolberg, W. N. Street and O. L. Mangasarian (1995), doi:10.24432/C5DW2B, which the UCI
    repository gives under the licence CC BY 4.0. Its standard errors and worst values are left out.

    In the book: :doc:`/book/logistic-regression`.

    Returns:
        ``measurements``, shape (569, 10): radius, texture (standard deviation of grey values),
        perimeter, area, smoothness (local variation of the radius), compactness
        (perimeter^2 / area - 1), concavity, concave points, symmetry, fractal dimension (minus
        one); lengths in units of the image.
        ``malignant``: 1 for the 212 malignant tumours, 0 for the 357 benign ones, shape (569,).

    >>> tumours = breast_cancer()
    >>> int(tumours.malignant.sum()), tumours.measurements.shape
    (212, (569, 10))
    """
    *measurements, malignant = _columns("breast_cancer.csv")
    return BreastCancer(np.column_stack(measurements), malignant)


def _columns(name: str) -> Float[np.ndarray, "C N"]:
    """The numbers of a file below its header, one row of the result for each column."""
    text = files("laplacebook").joinpath("data", name).read_text(encoding="utf-8")
    return np.array(list(csv.reader(text.splitlines()))[1:], float).T
