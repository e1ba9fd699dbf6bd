"""A nested approximation saved and loaded: the same to the last bit, or an error that teaches."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import laplacebook as lb
from tests.models import coin, single_precision

KEY = jax.random.key(0)
COUNTS = np.array([0, 1, 7, 2, 3, 12])
SUMS = np.array([[0.0, 3.0, 3.0], [1.0, 1.0, 4.0], [2.0, -1.0, 0.5]])
COIN = np.repeat([1.0, 0.0], [8, 1])


def poisson(y, scale=1.0):
    """Effects whose conditional is skew."""
    tau = numpyro.sample("tau", dist.HalfNormal(scale))
    with numpyro.plate("groups", y.size):
        z = numpyro.sample("z", dist.Normal(0, tau))
        numpyro.sample("y", dist.Poisson(jnp.exp(z)), obs=y)


def normal(y):
    """Effects whose conditional is exactly Gaussian, and a level that could be one."""
    level = numpyro.sample("level", dist.Normal(0, 1))
    sd = numpyro.sample("sd", dist.HalfNormal(2))
    with numpyro.plate("groups", y.shape[0], dim=-2):
        z = numpyro.sample("z", dist.Normal(level, sd))
        with numpyro.plate("rows", y.shape[1]):
            numpyro.sample("y", dist.Normal(z, 1), obs=y)


def written(folder, model, y, over=None):
    fit, path = lb.nested(model, y, over=over), folder / "fit.npz"
    fit.save(str(path))
    return fit, path


@pytest.fixture(scope="module")
def skew(tmp_path_factory):
    return written(tmp_path_factory.mktemp("skew"), poisson, COUNTS)


@pytest.fixture(scope="module")
def gaussian(tmp_path_factory):
    """What it was told with ``over=`` is no argument of the model."""
    return written(tmp_path_factory.mktemp("gaussian"), normal, SUMS, ["level", "sd"])


@pytest.fixture
def saved(skew, tmp_path):
    """The same file, to be changed."""
    copy = tmp_path / "fit.npz"
    copy.write_bytes(skew[1].read_bytes())
    return copy, poisson, COUNTS


def equal(one, other):
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])
        assert one[name].dtype == other[name].dtype


def is_the_same(fit, loaded):
    equal(fit.mean, loaded.mean)
    equal(fit.standard_deviation, loaded.standard_deviation)
    equal(fit.quantiles([0.05, 0.5, 0.95]), loaded.quantiles([0.05, 0.5, 0.95]))
    equal(fit.sample(KEY, (20,)), loaded.sample(KEY, (20,)))
    assert loaded.log_evidence == fit.log_evidence
    assert loaded.over == fit.over
    assert (loaded.pareto_k, loaded.doubt) == (fit.pareto_k, fit.doubt)
    assert repr(loaded) == repr(fit)


@pytest.mark.parametrize(
    ("name", "model", "y"), [("skew", poisson, COUNTS), ("gaussian", normal, SUMS)]
)
def test_round_trip_to_the_last_bit(name, model, y, request, tmp_path):
    """And what is loaded is saved as the same file."""
    fit, path = request.getfixturevalue(name)
    loaded = lb.load(path, model, y)
    assert isinstance(loaded, lb.NestedApproximation)
    is_the_same(fit, loaded)
    loaded.save(tmp_path / "again.npz")
    with np.load(path) as one, np.load(tmp_path / "again.npz") as other:
        assert set(one.files) == set(other.files)
        for field in one.files:
            np.testing.assert_array_equal(one[field], other[field])


def test_in_single_precision(tmp_path):
    path = tmp_path / "fit.npz"
    with single_precision():
        fit = lb.nested(poisson, COUNTS.astype("int32"))
        fit.save(path)
        is_the_same(fit, lb.load(path, poisson, COUNTS.astype("int32")))
        refused(path, poisson, COUNTS.astype("int32")[::-1] + 1, match="of other data")


def test_float64_is_not_truncated(saved):
    with single_precision():
        refused(saved[0], saved[1], saved[2].astype("int32"), match="enable_x64")


def refused(path, *model_and_arguments, match):
    with pytest.raises(lb.LaplaceError) as caught:
        lb.load(path, *model_and_arguments)
    assert match in " ".join(str(caught.value).split())
    assert "What to do:" in str(caught.value)


def test_other_data_are_refused_by_name(skew):
    other = COUNTS + (np.arange(COUNTS.size) == 1)
    refused(skew[1], poisson, other, match="argument 'y' had other numbers")
    refused(skew[1], poisson, other, match="other numbers are observed")
    refused(skew[1], poisson, COUNTS[:-1], match="its latent sites are")


def test_other_data_with_the_same_log_joint_are_refused(gaussian):
    """Of each group the sum and the sum of squares are the same."""
    other = SUMS[[1, 1, 2]]
    refused(gaussian[1], normal, other, match="argument 'y' had other numbers (9 of them)")


def test_another_model_is_refused(skew):
    refused(skew[1], coin, COIN, match="its latent sites are")

    def without_data(y):
        with numpyro.handlers.block(hide=["y"]):
            poisson(y)

    refused(skew[1], without_data, COUNTS, match="the log likelihood is now 0, saved -")


def test_another_prior_is_refused(skew):
    refused(skew[1], poisson, COUNTS, 1.001, match="the log prior")


def test_nothing_in_the_file_is_pickled(skew):
    with np.load(skew[1], allow_pickle=False) as archive:
        header = json.loads(str(archive["header"]))
        assert not any(archive[name].dtype.hasobject for name in archive.files)
    assert (header["format_version"], header["kind"]) == (1, "nested")
    assert header["model"] == "poisson"


def test_a_file_that_is_cut_short(saved):
    path, model, y = saved
    whole = path.read_bytes()
    for length in (0, 10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        refused(path, model, y, match="not a whole file of a saved approximation")
    with pytest.raises(FileNotFoundError):
        lb.load(path.with_name("nothing"), model, y)


def test_every_damaged_byte_is_noticed_or_does_not_matter(saved):
    path, model, y = saved
    whole, right = path.read_bytes(), lb.load(path, model, y)
    for place in np.random.default_rng(0).choice(len(whole), 40, replace=False):
        damaged = bytearray(whole)
        damaged[place] ^= 0x55
        path.write_bytes(damaged)
        try:
            loaded = lb.load(path, model, y)
        except lb.LaplaceError:
            continue
        assert loaded.log_evidence == right.log_evidence
        equal(loaded.sample(KEY, (3,)), right.sample(KEY, (3,)))


def rewritten(path, name, change):
    """The same archive with one array changed."""
    with np.load(path) as archive:
        arrays = {n: archive[n] for n in archive.files}
    arrays[name] = change(arrays.get(name))
    np.savez(path, **{n: x for n, x in arrays.items() if x is not None})


def with_header(**changes):
    return lambda header: np.array(json.dumps(json.loads(str(header)) | changes))


DAMAGED = {
    "no hyperparameter": ("header", with_header(over=[])),
    "another hyperparameter": ("header", with_header(over=["z"])),
    "no list": ("header", with_header(over=None)),
    "missing": ("grid/conditional/mode", lambda x: None),
    "too few points": ("grid/conditional/hyper", lambda x: x[1:]),
    "too few log marginals": ("grid/conditional/log_marginal", lambda x: x[1:]),
    "roots of another shape": ("grid/conditional/root", lambda x: x[:, 1:, 1:]),
    "another start": ("start", lambda x: x[1:]),
    "another digest": ("argument/y", lambda x: x[1:]),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_numbers_that_do_not_fit_together(saved, case):
    path, model, y = saved
    rewritten(path, *DAMAGED[case])
    refused(path, model, y, match="not a whole file of a saved approximation")


#: as the file of another fit would have them
OTHERS = {
    "modes": ("grid/conditional/mode", lambda x: x + 0.01),
    "roots": ("grid/conditional/root", lambda x: 1.01 * x),
    "hyperparameters": ("grid/conditional/hyper", lambda x: x + 0.01),
    "weights": ("grid/conditional/log_marginal", lambda x: 0 * x),
    "nan": ("grid/conditional/log_marginal", lambda x: x * np.nan),
    "values": ("value/z", lambda x: x + 0.01),
}


@pytest.mark.parametrize("case", OTHERS)
def test_numbers_of_another_fit(saved, case):
    path, model, y = saved
    rewritten(path, *OTHERS[case])
    refused(path, model, y, match="of another model or of other data")


def test_a_newer_format(saved):
    path, model, y = saved
    rewritten(path, "header", with_header(format_version=2, laplacebook_version="9.0"))
    refused(path, model, y, match="laplacebook 9.0 wrote it")


@pytest.fixture(scope="module")
def many():
    """So many effects that they are kept as leaves."""
    return lb.nested(poisson, np.arange(130.0) % 5)


def test_leaves_are_in_the_file(many, tmp_path):
    many.save(tmp_path / "fit.npz")
    assert many.grid.conditional.leaves is not None
    is_the_same(many, lb.load(tmp_path / "fit.npz", poisson, np.arange(130.0) % 5))
    for name, change in {
        "places": lambda x: x + 2,
        "slopes": lambda x: x[..., :0],
        "spread": lambda x: None,
    }.items():
        many.save(tmp_path / "fit.npz")
        rewritten(tmp_path / "fit.npz", f"grid/conditional/leaves/{name}", change)
        refused(tmp_path / "fit.npz", poisson, np.arange(130.0) % 5, match="not a whole file")


def test_a_file_that_knows_no_leaves_is_loaded(many, tmp_path):
    """As earlier versions wrote it, with the roots of whole precisions."""
    at = many.grid.conditional.without_leaves()
    grid, skewed = many.grid._replace(conditional=at), replace(many.skewed, nodes=at)
    earlier = replace(many, grid=grid, skewed=skewed)
    earlier.save(tmp_path / "fit.npz")
    with np.load(tmp_path / "fit.npz") as archive:
        assert not any("leaves" in name for name in archive.files)
        assert archive["grid/conditional/root"].shape[1:] == (130, 130)
    is_the_same(earlier, lb.load(tmp_path / "fit.npz", poisson, np.arange(130.0) % 5))
