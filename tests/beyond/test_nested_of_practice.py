"""``nested`` on the models of practice, against long runs of NUTS."""

import json

import jax
import numpy as np
import pytest

import laplacebook as lb
from tests.beyond.practice import MODELS
from tests.beyond.reference import FILE

RESULTS = json.loads(FILE.read_text())
NAMES = [name for name in MODELS if name not in ("horseshoe", "gp_classification")]
NAMES.append("gp_classification")  # the longest comes last

SURE = "eight_schools", "seeds", "dyes"


def share(values, quantiles):
    """Of the reference's draws below some values, by its quantiles; beyond the outermost these."""
    levels = np.array([float(level) for level in quantiles])
    rows = np.stack([np.ravel(q) for q in quantiles.values()], axis=1)
    pairs = zip(np.ravel(values), rows, strict=True)
    return np.array([np.interp(x, row, levels) for x, row in pairs])


@pytest.mark.parametrize("name", NAMES)
def test_agrees_with_nuts(name):
    """Means to a tenth of a standard deviation, these to a tenth, intervals of 90 % to 3 %, beyond its own error.

    So a diagnosis must not call it bad; and it lists what is no constant.
    """
    case, sites = MODELS[name], RESULTS[name]["sites"]
    fit = lb.nested(case.model, *case.args)
    assert fit.over == case.over
    assert fit.doubt is None
    listed, found = 0, [fit.mean, fit.standard_deviation, fit.quantiles([0.05, 0.95])]
    for site in fit.mean:
        mean, sd, ends = (np.asarray(part[site]) for part in found)
        keys = ("mean", "sd", "error", "ess", "ess_tail")
        truth = {key: np.array(sites[site][key], float) for key in keys}
        moves = truth["sd"] > 0  # a Cholesky factor has zeros and a one
        listed += moves.sum()
        allowed = 0.1 * truth["sd"] + 3 * truth["error"]
        assert np.all((abs(mean - truth["mean"]) < allowed)[moves]), site
        error = 3 / np.sqrt(truth["ess"][moves])
        assert np.all(abs(np.log(sd[moves] / truth["sd"][moves])) < 0.1 + error), site
        low, high = (share(end, sites[site]["quantiles"]).reshape(sd.shape) for end in ends)
        error = 3 * np.sqrt(0.1 / truth["ess_tail"][moves])
        assert np.all(abs((high - low)[moves] - 0.9) < 0.03 + error), site
    found = lb.diagnose(fit, jax.random.key(0))
    assert found.level in ({"good"} if name in SURE else {"good", "usable"}), found
    assert found.is_checked and fit.doubt is None
    assert len(found.sites["site"]) == listed
