"""Labels beside the groups at the other seams: compiled fits, chunks, files, predictions."""

import functools

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import laplacebook as lb
from tests.model.test_labels import ONE, G, J, Y, effects, exact, groups, observe

WRONG = np.where(G == 2, J + 5, G)
LABEL = "label 9, first at \\[2\\]"


def test_of_several_data_sets_the_wrong_one_is_nan():
    found = jax.vmap(functools.partial(lb.laplace, groups))(np.stack([G, WRONG]), np.stack([Y, Y]))
    np.testing.assert_allclose(found.log_evidence, [exact(ONE[G]), np.nan], rtol=1e-10)


def test_the_next_call_looks_again():
    first = lb.laplace(groups, G, Y)
    with pytest.raises(lb.NonFinite, match=LABEL):
        lb.laplace(groups, WRONG, Y)
    assert lb.laplace(groups, G, Y).log_evidence == first.log_evidence


def log_joint(a, g, y):
    return dist.Normal(0, 1).log_prob(a).sum() + dist.Normal(a[g], 1).log_prob(y).sum()


SEAMS = {
    "maximum_likelihood": lambda g: lb.maximum_likelihood(groups, g, Y),
    "a density": lambda g: lb.laplace_of_density(log_joint, np.zeros(J), g, Y),
    "chunks": lambda g: lb.laplace_of_chunks(groups, [(G, Y), (g, Y)]),
    "a late chunk": lambda g: lb.laplace_of_chunks(groups, [(G, Y)] * 3 + [(g, Y)]),
    "prior_sampling": lambda g: lb.prior_sampling(groups, g, Y, key=jax.random.key(0)),
    "train": lambda g: lb.train(groups, g, Y, key=jax.random.key(0)),
}


@pytest.mark.parametrize("call", SEAMS.values(), ids=SEAMS)
def test_seams(call):
    call(G)
    with pytest.raises(lb.LaplaceError, match="'g'.*(?s:.)*label"):
        call(WRONG)


def test_a_file_is_not_that_of_such_labels(tmp_path):
    lb.laplace(groups, G, Y).save(tmp_path / "fit.npz")
    assert lb.load(tmp_path / "fit.npz", groups, G, Y)
    with pytest.raises(lb.LaplaceError, match="'g'.*(?s:.)*label"):
        lb.load(tmp_path / "fit.npz", groups, WRONG, Y)


METHODS = [{"method": "linearized"}, {"method": "monte_carlo", "key": jax.random.key(0)}]


@pytest.mark.parametrize("options", METHODS, ids=lambda m: m["method"])
def test_prediction_of_an_unseen_group(options):
    fit = lb.laplace(groups, G, Y)
    mean = np.array([Y[G == 3].sum() / 4, Y[G == 0].sum() / 3])
    seen = lb.predict(fit, np.array([3, 0]), **options)
    np.testing.assert_allclose(seen.mean, mean, atol=0.1 if "key" in options else 1e-8)
    predict = jax.jit(functools.partial(lb.predict, fit, **options))
    for value in (J, -1):
        words = f"Argument 'g' has the label {value}, first at \\[1\\]"
        with pytest.raises(lb.NonFinite, match=words):
            lb.predict(fit, np.array([0, value]), **options)
        assert np.isnan(predict(np.array([0, value])).mean).all()


def switched(g, y):
    """At z = 0, where labels are looked for, it would be one too small."""
    z = numpyro.sample("z", dist.Normal(5, 1))
    observe(effects()[g - (z < 0.5)], y)


def test_an_index_that_a_latent_site_decides_is_no_label_of_the_data():
    found = lb.laplace(switched, G, Y)
    np.testing.assert_allclose(found.log_evidence, exact(ONE[G]), rtol=1e-10)
