"""Twelve models of practice, with their data, on which the integral over hyperparameters is checked.

Each is written as a NumPyro user would write it, centred or not. The priors of standard deviations are
half-normal (or as the source has them), where BUGS had inverse gammas; they are compared with NUTS on
the very same model, whose results `tests.beyond.reference` writes to `practice.json`.
"""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import scan
from numpyro.handlers import reparam
from numpyro.infer.reparam import LocScaleReparam

from laplacebook import datasets
from tests.beyond import simulated


class Case(NamedTuple):
    """A model with its data.

    Attributes:
        over: the sites of which one expects that they are integrated numerically.
        for_nuts: the same law of the same sites in a form that NUTS explores well, where the model is not.
    """

    model: Callable[..., None]
    args: tuple[np.ndarray, ...]
    over: tuple[str, ...]
    for_nuts: Callable[..., None] | None = None


def not_centred(model: Callable[..., None], *sites: str) -> Callable[..., None]:
    """The model, in which these sites are functions of standardised ones."""
    return reparam(model, config={site: LocScaleReparam(0) for site in sites})


def columns(name: str) -> dict[str, np.ndarray]:
    with (Path(__file__).parent / "data" / f"{name}.csv").open() as file:
        rows = list(csv.DictReader(file))
    return {
        key: np.array([float(row[key]) for row in rows]) for key in rows[0] if key != "neighbours"
    }


# Coaching for SAT-V in eight schools: Rubin (1981), J. Educ. Stat. 6, 377-401; priors as in the
# eight schools of posteriordb.
SCHOOLS = np.array([28.0, 8, -3, 7, -1, 1, 18, 12]), np.array([15.0, 10, 16, 11, 9, 11, 10, 18])


def eight_schools(y, error):
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("schools", len(y)):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("y", dist.Normal(theta, error), obs=y)


# Germinated of all seeds on 21 plates, by seed and root extract: Crowder (1978), Appl. Stat. 27,
# 34-37, table 3; "Seeds" of BUGS.
SEEDS = (
    np.array([10, 23, 23, 26, 17, 5, 53, 55, 32, 46, 10, 8, 10, 8, 23, 0, 3, 22, 15, 32, 3]),
    np.array([39, 62, 81, 51, 39, 6, 74, 72, 51, 79, 13, 16, 30, 28, 45, 4, 12, 41, 30, 51, 7]),
    np.repeat([0.0, 1.0], [11, 10]),
    np.repeat([0.0, 1.0, 0.0, 1.0], [5, 6, 5, 5]),
)


def seeds(r, n, seed, root):
    intercept = numpyro.sample("intercept", dist.Normal(0, 2))
    of_seed = numpyro.sample("of_seed", dist.Normal(0, 2))
    of_root = numpyro.sample("of_root", dist.Normal(0, 2))
    of_both = numpyro.sample("of_both", dist.Normal(0, 2))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    with numpyro.plate("plates", len(r)):
        b = numpyro.sample("b", dist.Normal(0, sigma))
        logits = intercept + of_seed * seed + of_root * root + of_both * seed * root + b
        numpyro.sample("r", dist.Binomial(n, logits=logits), obs=r)


# Failures and thousands of hours of ten pumps: Gaver and O'Muircheartaigh (1987), Technometrics 29,
# 1-15; "Pumps" of BUGS with its own priors: George, Makov and Smith (1993).
PUMPS = (
    np.array([5, 1, 5, 14, 3, 19, 1, 1, 4, 22]),
    np.array([94.3, 15.7, 62.9, 126, 5.24, 31.4, 1.05, 1.05, 2.1, 10.5]),
)


def pumps(failures, hours):
    alpha = numpyro.sample("alpha", dist.Exponential(1))
    beta = numpyro.sample("beta", dist.Gamma(0.1, 1))
    with numpyro.plate("pumps", len(failures)):
        theta = numpyro.sample("theta", dist.Gamma(alpha, beta))
        numpyro.sample("failures", dist.Poisson(theta * hours), obs=failures)


# Weights of 30 rats in five weeks: Gelfand, Hills, Racine-Poon and Smith (1990), JASA 85, 972-985,
# section 6; "Rats" of BUGS.
RATS = np.array([8.0, 15, 22, 29, 36]), np.stack(list(columns("rats").values()), 1)


def rats(day, weight):
    alpha_mean = numpyro.sample("alpha_mean", dist.Normal(200, 100))
    beta_mean = numpyro.sample("beta_mean", dist.Normal(0, 10))
    alpha_sd = numpyro.sample("alpha_sd", dist.HalfNormal(50))
    beta_sd = numpyro.sample("beta_sd", dist.HalfNormal(5))
    sigma = numpyro.sample("sigma", dist.HalfNormal(20))
    with numpyro.plate("rats", weight.shape[0], dim=-2):
        alpha = numpyro.sample("alpha", dist.Normal(alpha_mean, alpha_sd))
        beta = numpyro.sample("beta", dist.Normal(beta_mean, beta_sd))
        with numpyro.plate("days", weight.shape[1], dim=-1):
            mean = alpha + beta * (day - day.mean())
            numpyro.sample("weight", dist.Normal(mean, sigma), obs=weight)


# Gelman and Hill (2007), Data Analysis Using Regression and Multilevel/Hierarchical Models, section 12.6.
# Zeros are 0.1 there.
HOMES = datasets.radon()
LOG_RADON = np.log(np.maximum(HOMES.radon, 0.1))


def radon(county, first_floor, log_uranium, y):
    intercept = numpyro.sample("intercept", dist.Normal(0, 2))
    of_uranium = numpyro.sample("of_uranium", dist.Normal(0, 2))
    of_floor = numpyro.sample("of_floor", dist.Normal(0, 2))
    county_sd = numpyro.sample("county_sd", dist.HalfNormal(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    with numpyro.plate("counties", len(log_uranium)):
        mean = intercept + of_uranium * log_uranium
        alpha = numpyro.sample("alpha", dist.Normal(mean, county_sd))
    with numpyro.plate("houses", len(y)):
        numpyro.sample("y", dist.Normal(alpha[county] + of_floor * first_floor, sigma), obs=y)


# Four counts of seizures of 59 patients: Thall and Vail (1990), Biometrics 46, 657-671;
# "Epil" of BUGS, its third model.
EPIL = columns("epil")
VISITS = np.stack([EPIL[f"visit{i}"] for i in range(1, 5)], 1)


def epil(treated, base, age, y):
    fourth = np.array([0.0, 0, 0, 1])
    log_base, log_age = jnp.log(base / 4), jnp.log(age)
    covariates = {
        "base": log_base - log_base.mean(),
        "treatment": treated - treated.mean(),
        "both": treated * log_base - (treated * log_base).mean(),
        "age": log_age - log_age.mean(),
    }
    intercept = numpyro.sample("intercept", dist.Normal(0, 5))
    of_fourth = numpyro.sample("of_fourth", dist.Normal(0, 2))
    of_patient = sum(
        numpyro.sample(f"of_{name}", dist.Normal(0, 2)) * x for name, x in covariates.items()
    )
    patient_sd = numpyro.sample("patient_sd", dist.HalfNormal(1))
    visit_sd = numpyro.sample("visit_sd", dist.HalfNormal(1))
    with numpyro.plate("patients", y.shape[0], dim=-2):
        patient = numpyro.sample("patient", dist.Normal(0, patient_sd))
        with numpyro.plate("visits", y.shape[1], dim=-1):
            visit = numpyro.sample("visit", dist.Normal(0, visit_sd))
            eta = intercept + of_patient[:, None] + of_fourth * (fourth - 0.25) + patient + visit
            numpyro.sample("y", dist.Poisson(jnp.exp(eta)), obs=y)


# Yield of dyestuff of six batches: Davies (1947), Statistical Methods in Research and Production;
# "Dyes" of BUGS, Dyestuff of lme4.
DYES = np.array(
    [
        [1545.0, 1440, 1440, 1520, 1580],
        [1540, 1555, 1490, 1560, 1495],
        [1595, 1550, 1605, 1510, 1560],
        [1445, 1440, 1595, 1465, 1545],
        [1595, 1630, 1515, 1635, 1625],
        [1520, 1455, 1450, 1480, 1445],
    ]
)


def dyes(y):
    mean = numpyro.sample("mean", dist.Normal(1500, 100))
    batch_sd = numpyro.sample("batch_sd", dist.HalfNormal(100))
    sigma = numpyro.sample("sigma", dist.HalfNormal(100))
    with numpyro.plate("batches", y.shape[0], dim=-2):
        batch = numpyro.sample("batch", dist.Normal(mean, batch_sd))
        with numpyro.plate("samples", y.shape[1], dim=-1):
            numpyro.sample("y", dist.Normal(batch, sigma), obs=y)


def autoregression(y):
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    phi = numpyro.sample("phi", dist.TruncatedNormal(0.5, 0.3, low=-1, high=1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    first = numpyro.sample("first", dist.Normal(0, sigma / jnp.sqrt(1 - phi**2)))

    def step(previous, _):
        z = numpyro.sample("z", dist.Normal(phi * previous, sigma))
        return z, z

    _, z = scan(step, first, None, length=len(y) - 1)
    rates = jnp.exp(mean + jnp.append(first, z))
    numpyro.sample("y", dist.Poisson(rates).to_event(1), obs=y)


def autoregression_of_levels(y):
    """The same, of the levels eta = mean + z one by one, and of the mean when they are known."""
    phi = numpyro.sample("phi", dist.TruncatedNormal(0.5, 0.3, low=-1, high=1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    white = numpyro.sample("white", dist.Normal(0, 1).expand([len(y) + 1]).to_event(1))
    variance = sigma**2 / (1 - phi**2)
    start = white[0] * jnp.sqrt(1 + variance)

    def step(carry, e):
        eta, precision, weighted = carry
        sd = jnp.sqrt(sigma**2 + (1 - phi) ** 2 / precision)
        new = phi * eta + (1 - phi) * weighted / precision + sd * e
        precision += (1 - phi) ** 2 / sigma**2
        weighted += (1 - phi) * (new - phi * eta) / sigma**2
        return (new, precision, weighted), new

    carry = start, 1 + 1 / variance, start / variance
    (_, precision, weighted), eta = jax.lax.scan(step, carry, white[1:-1])
    mean = weighted / precision + white[-1] / jnp.sqrt(precision)
    mean = numpyro.deterministic("mean", mean)
    numpyro.deterministic("first", start - mean)
    numpyro.deterministic("z", eta - mean)
    numpyro.sample("y", dist.Poisson(jnp.exp(jnp.append(start, eta))).to_event(1), obs=y)


# Lip cancer in the 56 districts of Scotland, 1975-1980, and percent employed outdoors: Clayton and
# Kaldor (1987), Biometrics 43, 671-681; neighbours as in Stan's case study of ICAR models, in which
# the three islands have some (6, 8 and 11, which have none in GeoBUGS).
LIPS = columns("scotland")


def neighbours() -> tuple[np.ndarray, np.ndarray]:
    """The pairs of districts i < j that are neighbours, counted from zero."""
    with (Path(__file__).parent / "data" / "scotland.csv").open() as file:
        listed = [row["neighbours"].split() for row in csv.DictReader(file)]
    pairs = [(i, int(j) - 1) for i, row in enumerate(listed) for j in row if i < int(j) - 1]
    i, j = np.array(pairs).T
    return i, j


SUM_SD = 0.001 * 56


def icar(observed, expected, outdoors, i, j):
    intercept = numpyro.sample("intercept", dist.Normal(0, 2))
    slope = numpyro.sample("slope", dist.Normal(0, 2))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    with numpyro.plate("districts", len(observed)):
        phi = numpyro.sample("phi", dist.ImproperUniform(dist.constraints.real, (), ()))
        rates = expected * jnp.exp(intercept + slope * outdoors / 10 + sigma * phi)
        numpyro.sample("observed", dist.Poisson(rates), obs=observed)
    numpyro.factor("neighbours", -0.5 * jnp.sum((phi[i] - phi[j]) ** 2))
    numpyro.factor("sum to zero", dist.Normal(0, SUM_SD).log_prob(phi.sum()))


def icar_of_waves(observed, expected, outdoors, i, j):
    """The same in the eigenvectors of the precision of phi, where phi is standard normal."""
    edges = np.eye(56)[i] - np.eye(56)[j]
    values, vectors = np.linalg.eigh(edges.T @ edges + np.full((56, 56), SUM_SD**-2))
    intercept = numpyro.sample("intercept", dist.Normal(0, 2))
    slope = numpyro.sample("slope", dist.Normal(0, 2))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    waves = numpyro.sample("waves", dist.Normal(0, 1).expand([56]).to_event(1))
    phi = numpyro.deterministic("phi", (vectors / np.sqrt(values)) @ waves)
    rates = expected * jnp.exp(intercept + slope * outdoors / 10 + sigma * phi)
    numpyro.sample("observed", dist.Poisson(rates).to_event(1), obs=observed)


def covariance_of(x, amplitude, length):
    squares = ((x[:, None] - x) / length) ** 2
    return amplitude**2 * jnp.exp(-squares / 2) + 1e-6 * jnp.eye(len(x))


def gp_classification(x, y):
    amplitude = numpyro.sample("amplitude", dist.HalfNormal(3))
    length = numpyro.sample("length", dist.InverseGamma(5, 5))
    covariance = covariance_of(x, amplitude, length)
    f = numpyro.sample("f", dist.MultivariateNormal(0, covariance_matrix=covariance))
    numpyro.sample("y", dist.Bernoulli(logits=f).to_event(1), obs=y)


def gp_classification_of_white_noise(x, y):
    amplitude = numpyro.sample("amplitude", dist.HalfNormal(3))
    length = numpyro.sample("length", dist.InverseGamma(5, 5))
    white = numpyro.sample("white", dist.Normal(0, 1).expand([len(x)]).to_event(1))
    root = jnp.linalg.cholesky(covariance_of(x, amplitude, length))
    f = numpyro.deterministic("f", root @ white)
    numpyro.sample("y", dist.Bernoulli(logits=f).to_event(1), obs=y)


def correlated_slopes(group, x, y):
    mean = numpyro.sample("mean", dist.Normal(0, 2).expand([2]).to_event(1))
    sd = numpyro.sample("sd", dist.HalfNormal(1).expand([2]).to_event(1))
    correlation = numpyro.sample("L", dist.LKJCholesky(2, 2))
    numpyro.deterministic("correlation", correlation[1, 0])
    with numpyro.plate("groups", 20):
        b = numpyro.sample("b", dist.MultivariateNormal(mean, scale_tril=sd[:, None] * correlation))
    logits = b[group, 0] + b[group, 1] * x
    numpyro.sample("y", dist.Bernoulli(logits=logits).to_event(1), obs=y)


def correlated_slopes_of_white_noise(group, x, y):
    mean = numpyro.sample("mean", dist.Normal(0, 2).expand([2]).to_event(1))
    sd = numpyro.sample("sd", dist.HalfNormal(1).expand([2]).to_event(1))
    correlation = numpyro.sample("L", dist.LKJCholesky(2, 2))
    numpyro.deterministic("correlation", correlation[1, 0])
    white = numpyro.sample("white", dist.Normal(0, 1).expand([20, 2]).to_event(2))
    b = numpyro.deterministic("b", mean + white @ (sd[:, None] * correlation).T)
    logits = b[group, 0] + b[group, 1] * x
    numpyro.sample("y", dist.Bernoulli(logits=logits).to_event(1), obs=y)


def horseshoe(x, y):
    tau = numpyro.sample("tau", dist.HalfCauchy(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(2))
    with numpyro.plate("covariates", x.shape[1]):
        lam = numpyro.sample("lam", dist.HalfCauchy(1))
        beta = numpyro.sample("beta", dist.Normal(0, tau * lam))
    numpyro.sample("y", dist.Normal(x @ beta, sigma).to_event(1), obs=y)


def horseshoe_without_beta(x, y):
    """The same with beta integrated out, and drawn given the rest."""
    tau = numpyro.sample("tau", dist.HalfCauchy(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(2))
    with numpyro.plate("covariates", x.shape[1]):
        lam = numpyro.sample("lam", dist.HalfCauchy(1))
        white = numpyro.sample("white", dist.Normal(0, 1))
    scaled = x * tau * lam
    root = jnp.linalg.cholesky(jnp.eye(x.shape[1]) + scaled.T @ scaled / sigma**2)
    half = jax.scipy.linalg.solve_triangular(root, scaled.T @ y / sigma**2, lower=True)
    given = jax.scipy.linalg.solve_triangular(root.T, half + white)
    numpyro.deterministic("beta", tau * lam * given)
    zero, noise = jnp.zeros(len(y)), jnp.full(len(y), sigma**2)
    numpyro.sample("y", dist.LowRankMultivariateNormal(zero, scaled, noise), obs=y)


MODELS: dict[str, Case] = {
    "eight_schools": Case(eight_schools, SCHOOLS, ("tau",), not_centred(eight_schools, "theta")),
    "seeds": Case(seeds, SEEDS, ("sigma",), not_centred(seeds, "b")),
    "pumps": Case(pumps, PUMPS, ("alpha", "beta")),
    "rats": Case(rats, RATS, ("alpha_sd", "beta_sd", "sigma")),
    "radon": Case(
        radon,
        (HOMES.county, HOMES.first_floor, HOMES.log_uranium, LOG_RADON),
        ("county_sd", "sigma"),
        not_centred(radon, "alpha"),
    ),
    "epil": Case(
        epil,
        (EPIL["treated"], EPIL["base"], EPIL["age"], VISITS),
        ("patient_sd", "visit_sd"),
        not_centred(epil, "visit"),
    ),
    "dyes": Case(dyes, (DYES,), ("batch_sd", "sigma"), not_centred(dyes, "batch")),
    "autoregression": Case(
        autoregression, (simulated.counts(),), ("phi", "sigma"), autoregression_of_levels
    ),
    "icar": Case(
        icar,
        (LIPS["observed"], LIPS["expected"], LIPS["outdoors"], *neighbours()),
        ("sigma",),
        icar_of_waves,
    ),
    "gp_classification": Case(
        gp_classification,
        simulated.classes(),
        ("amplitude", "length"),
        gp_classification_of_white_noise,
    ),
    "correlated_slopes": Case(
        correlated_slopes, simulated.slopes(), ("sd", "L"), correlated_slopes_of_white_noise
    ),
    "horseshoe": Case(
        horseshoe, simulated.sparse(), ("tau", "sigma", "lam"), horseshoe_without_beta
    ),
}
