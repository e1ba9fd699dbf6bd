"""A result of very many numbers: what is printed of it, its picture, its file, and what its failures say."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import laplacebook as lb
from laplacebook.fit.by_site import table_by_site
from laplacebook.model.density import ModelDensity
from laplacebook.search import newton_step

RNG = np.random.default_rng(0)

Y, TABLE = RNG.normal(size=2_500), RNG.normal(size=(8, 8))


def fields(y, table):
    """The exact answer: b, w are their priors, z is y / 2 with sd 0.5^0.5, m is table / 2."""
    numpyro.sample("b", dist.Normal(3, 1))
    numpyro.sample("w", dist.Normal(0, 1).expand([12]).to_event(1))
    m = numpyro.sample("m", dist.Normal(0, 1).expand([8, 8]).to_event(2))
    numpyro.sample("table", dist.Normal(m, 1).to_event(2), obs=table)
    z = numpyro.sample("z", dist.Normal(0, 1).expand([y.size]).to_event(1))
    numpyro.sample("y", dist.Normal(z, 1).to_event(1), obs=y)


@pytest.fixture(scope="module")
def fit():
    return lb.laplace(fields, Y, TABLE, structure="sparse")


def test_a_long_site_is_one_line_and_its_largest(fit):
    said = repr(fit)
    number = r"(-?[\d.]+)"
    (line,) = re.findall(rf"z \(2,500 numbers\) +{number} to {number} +0\.7071  ", said)
    np.testing.assert_allclose(list(map(float, line)), [Y.min() / 2, Y.max() / 2], rtol=1e-3)
    order = np.argsort(-np.abs(Y))
    largest = ", ".join(f"{abs(Y[i]) * 0.5**0.5:.3g} at z[{i}]" for i in order[:3])
    assert f"largest |mode| / sd of z: {largest}\n" in said
    row, column = np.unravel_index(np.argmax(np.abs(TABLE)), TABLE.shape)
    assert "m (64 numbers)" in said and f" at m[{row}, {column}], " in said
    assert "w[8]" in said and "w[9]" not in said
    assert "... and 3 more numbers of sites of at most 50" in said
    assert len(said.splitlines()) < 25
    assert "<td>0.7071</td>" in fit._repr_html_() and "largest |mode|" in fit._repr_html_()


def test_the_summary_has_every_row_and_prints_its_ends(fit):
    table = fit.summary()
    assert len(table) == len(table["mode"]) == 1 + 12 + 64 + 2_500
    assert table["site"][-1] == "z[2499]"
    np.testing.assert_allclose(table["mode"][-2_500:], Y / 2, atol=1e-8)
    for said in (repr(table), table._repr_html_()):
        assert "z[2499]" in said and "z[2490]" in said and "z[2489]" not in said
        assert "2,577 rows, of which the first 10 and the last 10 are printed" in said


def test_a_table_of_a_hundred_rows_is_whole():
    whole, long = (lb.Table("t", {"n": list(range(n))}) for n in (100, 101))
    assert len(repr(whole).splitlines()) == 102
    assert len(repr(long).splitlines()) == 1 + 1 + 10 + 1 + 10 + 1


def test_what_has_no_standard_deviation_is_told(fit):
    nothing = {name: np.full(np.shape(value), np.nan) for name, value in fit.mode.items()}
    some = {name: np.ones(np.shape(value)) for name, value in fit.mode.items()}
    some["z"][5:7] = np.nan
    for sd, number in ((some, "2"), (nothing, "2,500")):
        said = repr(table_by_site(fit.density, {"mode": fit.mode, "sd": sd}))
        assert f"the sd of {number} of the numbers of z is NaN" in said
    assert re.search(r"z \(2,500 numbers\) .* nan\n", said)


def many(y):
    for i in range(12):
        numpyro.sample(f"z{i}", dist.Normal(0, 1).expand([51]).to_event(1))


def test_many_long_sites_are_ten():
    density = ModelDensity.of(many, (jnp.zeros(1),))
    numbers = {f"z{i}": np.ones(51) for i in range(12)}
    said = repr(table_by_site(density, {"mode": numbers, "sd": numbers}))
    assert "z9 (51" in said and "z10" not in said
    assert "... and 2 more sites of more than 50 numbers each" in said


def test_the_picture_shows_mode_and_interval(fit):
    (axes,) = fit.plot("w", 0.5).axes
    (line,) = axes.lines
    np.testing.assert_allclose(line.get_ydata(), np.zeros(12), atol=1e-9)
    low, high = axes.collections[0].get_datalim(axes.transData).intervaly
    assert (low, high) == pytest.approx((-0.6745, 0.6745), abs=1e-4)
    assert "25 % to 75 %" in axes.figure.legends[0].get_texts()[0].get_text()


def test_a_place_of_a_long_picture_stands_for_all_its_numbers(fit):
    (axes,) = fit.plot("z").axes
    band, modes = axes.collections
    extent = modes.get_datalim(axes.transData)
    np.testing.assert_allclose(extent.intervaly, [Y.min() / 2, Y.max() / 2], rtol=1e-6)
    assert extent.x1 == 2_499 // 3 * 3
    wide = band.get_datalim(axes.transData).intervaly
    np.testing.assert_allclose(wide - extent.intervaly, [-1.1631, 1.1631], atol=1e-3)
    assert "(a place: 3 numbers)" in axes.figure.legends[0].get_texts()[0].get_text()


@pytest.mark.parametrize("site", ["b", "m", "nothing"])
def test_what_has_no_one_index_is_refused(fit, site):
    with pytest.raises(
        ValueError, match=rf"(?s)not '{site}'; there are 'b' of shape \(\).*diagnose.*plot\(site\)"
    ):
        fit.plot(site)
    with pytest.raises(ValueError, match="probability must be between"):
        fit.plot("z", 1.5)


COUNTS = RNG.poisson(3.0, 120)

REAL = dist.constraints.real


def walk(y):
    z = numpyro.sample("z", dist.GaussianRandomWalk(0.3, y.size))
    c = z - z.mean()
    numpyro.sample("y", dist.Poisson(jnp.exp(1 + c)).to_event(1), obs=y)


def two_fields(y):
    """Of which the data know the sum alone."""
    z = numpyro.sample("z", dist.ImproperUniform(REAL, (), (y.size,)))
    w = numpyro.sample("w", dist.ImproperUniform(REAL, (), (y.size,)))
    numpyro.factor("smooth", dist.Normal(0, 1).log_prob(z[1:] - z[:-1]).sum())
    numpyro.sample("y", dist.Normal(z + w, 1).to_event(1), obs=y)


def saddle(y):
    z = numpyro.sample("z", dist.ImproperUniform(REAL, (), (y.size,)))
    numpyro.factor("up", jnp.sum(z[0] ** 2 - 0.01 * z[0] ** 4))
    numpyro.sample("y", dist.Normal(z[1:], 1).to_event(1), obs=y[1:])


@pytest.fixture(scope="module")
def of_counts():
    return lb.laplace(walk, COUNTS, structure="sparse")


def test_a_file_keeps_what_is_sparse(of_counts, tmp_path):
    of_counts.save(tmp_path / "fit.npz")
    loaded = lb.load(tmp_path / "fit.npz", walk, COUNTS)
    assert isinstance(loaded.precision, lb.SparsePrecision)
    assert loaded.log_evidence == of_counts.log_evidence
    key = jax.random.key(0)
    np.testing.assert_array_equal(loaded.sample(key, (5,))["z"], of_counts.sample(key, (5,))["z"])


def test_functions_of_the_coordinates(of_counts):
    jacobian = RNG.normal(size=(4, COUNTS.size))
    covariance = np.asarray(of_counts.covariance)
    np.testing.assert_allclose(
        of_counts.precision.covariance_of(jnp.asarray(jacobian)),
        jacobian @ covariance @ jacobian.T,
        rtol=1e-10,
    )
    np.testing.assert_allclose(
        covariance, np.linalg.inv(of_counts.precision.matrix), rtol=1e-9, atol=1e-12
    )


def test_it_says_that_it_is_sparse(of_counts):
    assert "hessian curvature, sparse" in repr(of_counts)


def test_a_flat_direction_of_many_coordinates_is_named(monkeypatch):
    monkeypatch.setattr(newton_step, "MAX_ITERATIONS", 100)  # all of which they take
    y = RNG.normal(size=1_600)
    with pytest.raises(lb.NotPositiveDefinite) as error:
        lb.laplace(two_fields, y, structure="sparse")
    said = re.sub(r"\s+", " ", str(error.value))
    assert re.search(r"is flat along [-+][\d.]+ z\[\d+\]", said), said
    assert "as far as rounding can tell" in said


def test_a_direction_that_curves_upwards_is_left():
    """The start is a saddle; there is a mode on either side of it."""
    found = lb.laplace(saddle, np.zeros(40), structure="sparse")
    assert abs(found.mode["z"][0]) == pytest.approx(50**0.5)
