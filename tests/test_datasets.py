"""The data that the package ships: every byte of the files, and what the functions make of them."""

import hashlib
from importlib.resources import files

import numpy as np
import pytest

from laplacebook import datasets

SHA256 = {
    "breast_cancer.csv": "0e4eb213cce64aa305932103c38f8a8a464cd1299ff0bd20794be02af837d3b4",
    "iris.csv": "17e9e19553ed7fa1ebb8b5b4d9d3536da813ebacaf446aff895742dff04087c3",
    "o_rings.csv": "211971dec91ef384e9a15fc5430bf9cb41a4a5689a7eceffc4308e9d52dbc7d4",
    "radiata_pine.csv": "128459c8ae7104f7572135e798127c7839e17f4440c5d42f0b3e68af732cb514",
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
