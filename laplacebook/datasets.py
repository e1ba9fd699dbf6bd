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
    "Digits",
    "Iris",
    "LipCancer",
    "ORings",
    "RadiataPine",
    "Radon",
    "ar1_counts",
    "breast_cancer",
    "coal_mining",
    "digits",
    "iris",
    "lip_cancer",
    "o_rings",
    "radiata_pine",
    "radon",
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


class Digits(NamedTuple):
    """Small images of 1,797 digits written by hand, and which digit each is."""

    images: Int[np.ndarray, "N 64"]
    labels: Int[np.ndarray, " N"]


class LipCancer(NamedTuple):
    """Cases of lip cancer in the 56 districts of Scotland, and which districts are neighbours."""

    observed: Int[np.ndarray, " N"]
    expected: Float[np.ndarray, " N"]
    outdoors: Float[np.ndarray, " N"]
    pairs: Int[np.ndarray, "E 2"]


class Radon(NamedTuple):
    """Radon in 919 houses of the 85 counties of Minnesota, and uranium in the soil of each county."""

    county: Int[np.ndarray, " N"]
    first_floor: Float[np.ndarray, " N"]
    radon: Float[np.ndarray, " N"]
    log_uranium: Float[np.ndarray, " J"]


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
        ``temperature``: of the joint at launch, as calculated, degrees Fahrenheit, shape (23,).
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


def digits() -> Digits:
    r"""1,797 digits written by hand, as images of 8 by 8 pixels.

    The test part of the data of E. Alpaydin and C. Kaynak (1998), "Optical Recognition of Handwritten
    Digits", doi:10.24432/C50P49, which the UCI repository gives under the licence CC BY 4.0; the part that
    scikit-learn has too, in its order. Thirteen people wrote them. A bitmap of 32 by 32 was cut into squares
    of 4 by 4; a pixel is the number of black ones in a square. The file has one character for each.

    In the book: :doc:`/book/digits`.

    Returns:
        ``images``: 0 (white) to 16 (black), the rows of an image one after the other, shape (1797, 64).
        ``labels``: the digits 0, ..., 9, shape (1797,).

    >>> images, labels = digits()
    >>> print(int(labels[3]), images[3].reshape(8, 8), sep="\n")
    3
    [[ 0  0  7 15 13  1  0  0]
     [ 0  8 13  6 15  4  0  0]
     [ 0  2  1 13 13  0  0  0]
     [ 0  0  2 15 11  1  0  0]
     [ 0  0  0  1 12 12  1  0]
     [ 0  0  0  0  1 10  8  0]
     [ 0  0  8  4  5 14  9  0]
     [ 0  0  7 13 13  9  0  0]]
    """
    labels, images = zip(*_rows("digits.csv"), strict=True)
    pixels = [[int(pixel, 17) for pixel in image] for image in images]
    return Digits(np.array(pixels), np.array(labels, int))


def coal_mining() -> Int[np.ndarray, " N"]:
    """The days of 191 explosions in British coal mines that killed ten people or more, 1851 to 1962.

    R. G. Jarrett (1979), Biometrika 66, 191-193, doi:10.1093/biomet/66.1.191, who corrected and extended
    the list of Maguire, Pearson and Wynn (1952). Dates of events are facts; these are those of the R package
    ``boot``, as whole days. The yearly counts that circulate since Carlin, Gelfand and Smith (1992),
    doi:10.2307/2347570, have the explosion of 1 January 1942 in the year before.

    In the book: :doc:`/book/latent-fields`.

    Returns:
        The number of the day, with repeats, shape (191,): 1 is 1 January 1851, and 40,907 is 31 December 1962.

    >>> coal_mining()[:3]
    array([ 74, 231, 354])
    """
    return _columns("coal_mining.csv")[0].astype(int)


def ar1_counts() -> Int[np.ndarray, " N"]:
    """2,000 simulated counts whose log rate is an autoregression of order one.

    A test of software for latent fields, made for the book: counts y_t ~ Poisson(exp(b + z_t)) with
    stationary Gaussian z_t = phi z_{t-1} + noise.

    In the book: :doc:`/book/latent-fields`.

    Returns:
        The counts in the order of time, shape (2000,).

    >>> ar1_counts()[:3]
    array([6, 1, 9])
    """
    return _columns("ar1_counts.csv")[0].astype(int)


def lip_cancer() -> LipCancer:
    """Lip cancer among men in the 56 districts of Scotland, 1975 to 1980.

    D. Clayton and J. Kaldor (1987), Biometrics 43, 671-681, doi:10.2307/2532003. Numbers printed in a
    publication are facts. Lists of neighbours differ in the three islands (districts 6, 8 and 11), which
    have none in GeoBUGS; here they have some, as in Stan's case study of such models, so that the map is of
    one piece.

    In the book: :doc:`/book/latent-fields`.

    Returns:
        ``observed``: cases, shape (56,).
        ``expected``: the cases that there would be at the rates of all Scotland, given ages, shape (56,).
        ``outdoors``: percentage of people in agriculture, fishing and forestry, shape (56,).
        ``pairs``: the neighbours i < j, counted from zero, shape (E, 2).

    >>> cases = lip_cancer()
    >>> int(cases.observed.sum()), cases.pairs.shape
    (536, (132, 2))
    """
    rows = _rows("lip_cancer.csv")
    observed, expected, outdoors = np.array([row[:3] for row in rows], float).T
    around = [[int(j) - 1 for j in row[3].split()] for row in rows]
    pairs = [(i, j) for i, listed in enumerate(around) for j in listed if i < j]
    return LipCancer(observed.astype(int), expected, outdoors, np.array(pairs))


def radon() -> Radon:
    """Radon in the air of 919 houses in Minnesota, by county, with uranium in the soil of each county.

    Screening measurements of a few days, of a survey by the Environmental Protection Agency of the United
    States and the state; P. N. Price, A. V. Nero and A. Gelman (1996), Health Physics 71, 922-936,
    doi:10.1097/00004032-199612000-00009. The copy is that of A. Gelman and J. Hill (2007), *Data Analysis Using
    Regression and Multilevel/Hierarchical Models*, doi:10.1017/CBO9780511790942, in its order. Measurements
    of an agency of the United States are in the public domain, and numbers are facts. Two counties in which no
    house was measured are not among the 85, which are in alphabetical order.

    In the book: :doc:`/book/hierarchical`.

    Returns:
        ``county``: the number of the county of each house, counted from zero, shape (919,).
        ``first_floor``: 1 if it was measured on the first floor, 0 in the basement, shape (919,).
        ``radon``: pCi/L, in steps of 0.1, three of them zero, shape (919,).
        ``log_uranium``: log of parts per million of each county, shape (85,).

    >>> homes = radon()
    >>> homes.radon[homes.county == 35]  # Lac qui Parle
    array([11.3, 16. ])
    """
    county, uranium, first_floor, measured = _columns("radon.csv")
    number = county.astype(int) - 1
    return Radon(number, first_floor, measured, uranium[np.unique(number, return_index=True)[1]])


def _rows(name: str) -> list[list[str]]:
    """The cells of a file below its header."""
    text = files("laplacebook").joinpath("data", name).read_text(encoding="utf-8")
    return list(csv.reader(text.splitlines()))[1:]


def _columns(name: str) -> Float[np.ndarray, "C N"]:
    """The numbers of a file below its header, one row of the result for each column."""
    return np.array(_rows(name), float).T
