"""The data that the package ships: every byte of the files, and what the functions make of them."""

import hashlib
from importlib.resources import files

import numpy as np
import pytest
from sklearn.datasets import load_digits

from laplacebook import datasets

SHA256 = {
    "ar1_counts.csv": "dfbc4a6e0b0d94da286901c3e639d06e54dc4cd818daaf9460f6f2d2c6276aaf",
    "breast_cancer.csv": "0e4eb213cce64aa305932103c38f8a8a464cd1299ff0bd20794be02af837d3b4",
    "coal_mining.csv": "b45cc34cde4605fd86a8a44180006445d40ce3aaab433815231f5ec164eb4320",
    "digits.csv": "d10002f3e75633f53e842c081a6db8a303814f0e39d045414965fa2f758976ef",
    "iris.csv": "17e9e19553ed7fa1ebb8b5b4d9d3536da813ebacaf446aff895742dff04087c3",
    "lip_cancer.csv": "8dd988d76515b281252965eb787eef776287e79a949733e08ef175a9a352abd8",
    "o_rings.csv": "211971dec91ef384e9a15fc5430bf9cb41a4a5689a7eceffc4308e9d52dbc7d4",
    "radiata_pine.csv": "128459c8ae7104f7572135e798127c7839e17f4440c5d42f0b3e68af732cb514",
    "radon.csv": "d219e9abd0ef964bb2c73b53b920cbadaecee213a4cf4c1cfad67d90164db5c4",
}


def test_no_file_changes_unseen():
    tables = (file for file in (files("laplacebook") / "data").iterdir() if file.suffix == ".csv")
    found = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in tables}
    assert found == SHA256


def test_radiata_pine():
    pine = datasets.radiata_pine()
    assert [column.shape for column in pine] == [(42,)] * 3
    assert [column[8] for column in pine] == [3160, 27.1, 26.3]
    assert [column[41] for column in pine] == [3030, 28.2, 28.2]
    assert (pine.adjusted_density <= pine.density).all()  # resin has a weight
    assert pine.strength.sum() == 125_660


def test_copies_of_the_pine_differ_in_specimen_9_alone():
    bugs, other = datasets.radiata_pine(), datasets.radiata_pine("friel_wyse")
    for a, b in zip(bugs, other, strict=True):
        assert np.flatnonzero(a != b).tolist() == [8]
    with pytest.raises(ValueError, match="copy must be one of \\['bugs', 'friel_wyse'\\]"):
        datasets.radiata_pine("williams")


def test_o_rings():
    flights = datasets.o_rings()
    assert [column.shape for column in flights] == [(23,)] * 2
    assert flights.distress.sum() == 7
    assert flights.distress[flights.temperature < 65].all()  # all four cold launches
    assert flights.temperature.min() == 53 and flights.temperature.max() == 81


def test_iris():
    flowers = datasets.iris()
    assert flowers.measurements.shape == (150, 4)
    assert np.bincount(flowers.species).tolist() == [50, 50, 50]
    # Fisher's Table 1: the two flowers that the UCI repository has otherwise.
    assert flowers.measurements[34].tolist() == [4.9, 3.1, 1.5, 0.2]
    assert flowers.measurements[37].tolist() == [4.9, 3.6, 1.4, 0.1]


def test_breast_cancer():
    tumours = datasets.breast_cancer()
    assert tumours.measurements.shape == (569, 10)
    assert np.bincount(tumours.malignant.astype(int)).tolist() == [357, 212]
    radius, perimeter, area = tumours.measurements[:, [0, 2, 3]].T
    assert np.corrcoef(radius**2, area)[0, 1] > 0.99 and np.corrcoef(radius, perimeter)[0, 1] > 0.99


def test_digits():
    ours, theirs = datasets.digits(), load_digits()
    assert (ours.images == theirs.data).all() and (ours.labels == theirs.target).all()
    assert ours.images.shape == (1797, 64) and ours.images.max() == 16


def test_coal_mining():
    days = datasets.coal_mining()
    # Jarrett's Table 1 begins with these intervals, and spans 15 March 1851 to 22 March 1962.
    assert np.diff(days)[:12].tolist() == [157, 123, 2, 124, 12, 4, 10, 216, 80, 12, 33, 66]
    begin = np.datetime64("1850-12-31")
    assert str(begin + days[0]) == "1851-03-15" and str(begin + days[-1]) == "1962-03-22"
    per_year = np.bincount((begin + days).astype("datetime64[Y]").astype(int) + 1970 - 1851)
    assert per_year[:16].tolist() == [4, 5, 4, 1, 0, 4, 3, 4, 0, 6, 3, 3, 4, 0, 2, 6]
    assert per_year.size == 112 and per_year.sum() == days.size == 191
    assert "1942-01-01" in (begin + days).astype(str)


def test_ar1_counts():
    y = datasets.ar1_counts()
    assert y.shape == (2000,) and y.min() == 0
    x = np.log(y + 0.5) - np.log(y + 0.5).mean()
    assert x[1:] @ x[:-1] / (x @ x) > 0.4


def test_lip_cancer():
    cases = datasets.lip_cancer()
    assert cases.observed.sum() == 536 and abs(cases.expected.sum() - 536.2) < 1e-9
    i, j = cases.pairs.T
    assert (i < j).all() and len(np.unique(cases.pairs, axis=0)) == 132
    edges = np.eye(56)[i] - np.eye(56)[j]
    assert np.linalg.matrix_rank(edges) == 55  # of one piece
    assert np.flatnonzero(cases.observed == 0).tolist() == [54, 55]


def test_radon():
    homes = datasets.radon()
    assert (homes.first_floor.sum(), homes.radon.sum()) == (153, pytest.approx(4381.9))
    assert np.unique(homes.radon)[:2].tolist() == [0, 0.1] and (homes.radon == 0).sum() == 3
    # Gelman and Hill, section 12.2: quartiles of uranium by house.
    quartiles = np.quantile(np.exp(homes.log_uranium[homes.county]), [0, 0.25, 0.5, 0.75, 1])
    np.testing.assert_allclose(quartiles, [0.414, 0.622, 0.908, 1.201, 1.696], atol=6e-4)
    # Price, Nero and Gelman's table of counties: houses and geometric mean in Bq/m^3 (37 of them are a pCi/L).
    table = {0: (4, 73), 1: (52, 88), 2: (3, 107), 25: (105, 136), 35: (2, 498)}
    for county, (houses, geometric_mean) in table.items():
        measured = np.maximum(homes.radon[homes.county == county], 0.1)
        assert len(measured) == houses
        assert 37 * np.exp(np.log(measured).mean()) == pytest.approx(geometric_mean, rel=0.04)
    assert np.bincount(homes.county)[[69, 84]].tolist() == [116, 2]
