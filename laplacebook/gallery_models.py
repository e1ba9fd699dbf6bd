"""Twenty models of practice, each as a NumPyro user would write it, in the form in which it comes to mind.

The first line of a docstring says what is modelled; the other, where the data come from. Its arguments are the data
of the same names, in ``laplacebook/data/gallery.json`` or in :mod:`laplacebook.datasets`.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

Data = Any  # an array of NumPy, or of JAX where the model is traced
MODELS: dict[str, Callable[..., None]] = {}


def _in_gallery(model: Callable[..., None]) -> Callable[..., None]:
    MODELS[model.__name__] = model
    return model


@_in_gallery
def globe(water: Data, tosses: Data) -> None:
    """Water under the finger in 6 of 9 tosses of a globe; what share of it is water?

    R. McElreath, *Statistical Rethinking* (2020), chapter 2.
    """
    share = numpyro.sample("share", dist.Uniform(0, 1))
    numpyro.sample("water", dist.Binomial(tosses, share), obs=water)


@_in_gallery
def o_rings(temperature: Data, distress: Data) -> None:
    """Distress of O-rings in 23 launches of the space shuttle, by temperature: a logistic regression.

    S. R. Dalal, E. B. Fowlkes and B. Hoadley (1989), J. Am. Stat. Assoc. 84, 945-957.
    """
    intercept = numpyro.sample("intercept", dist.Normal(0, 5))
    slope = numpyro.sample("slope", dist.Normal(0, 5))
    logits = intercept + slope * (temperature - 70) / 10
    numpyro.sample("distress", dist.Bernoulli(logits=logits).to_event(1), obs=distress)


@_in_gallery
def tumours(x: Data, malignant: Data) -> None:
    """Which of 569 breast tumours are malignant, by five collinear measurements of their nuclei.

    W. H. Wolberg, W. N. Street and O. L. Mangasarian (1995), doi:10.24432/C5DW2B.
    """
    intercept = numpyro.sample("intercept", dist.Normal(0, 5))
    weights = numpyro.sample("weights", dist.Normal(0, 5).expand([x.shape[1]]).to_event(1))
    numpyro.sample(
        "malignant", dist.Bernoulli(logits=intercept + x @ weights).to_event(1), obs=malignant
    )


@_in_gallery
def pines(density: Data, strength: Data) -> None:
    """Strength of 42 specimens of pine by their density: a straight line with unknown noise.

    E. J. Williams, *Regression Analysis* (1959); see :func:`laplacebook.datasets.radiata_pine`.
    """
    intercept = numpyro.sample("intercept", dist.Normal(3000, 1000))
    slope = numpyro.sample("slope", dist.Normal(0, 500))
    sigma = numpyro.sample("sigma", dist.HalfNormal(500))
    mean = intercept + slope * (density - density.mean())
    numpyro.sample("strength", dist.Normal(mean, sigma).to_event(1), obs=strength)


@_in_gallery
def stack_loss(x: Data, y: Data) -> None:
    """Ammonia lost in 21 days of a plant, by three covariates, with Student-t errors of unknown degrees of freedom.

    K. A. Brownlee, *Statistical Theory and Methodology* (1965), p. 454.
    """
    scaled = (x - x.mean(0)) / x.std(0)
    intercept = numpyro.sample("intercept", dist.Normal(0, 50))
    weights = numpyro.sample("weights", dist.Normal(0, 10).expand([3]).to_event(1))
    # Eight days lie in one plane: under a prior that does not vanish at zero the posterior would be improper.
    sigma = numpyro.sample("sigma", dist.LogNormal(1, 1))
    degrees = numpyro.sample("degrees", dist.Gamma(2, 0.1))
    errors = dist.StudentT(degrees, intercept + scaled @ weights, sigma)
    numpyro.sample("y", errors.to_event(1), obs=y)


@_in_gallery
def absences(cultural: Data, sex: Data, age: Data, slow: Data, days: Data) -> None:
    """Days that 146 children were absent from school in a year: negative binomial counts by four factors.

    S. Quine (1975), in M. Aitkin (1978), J. R. Stat. Soc. A 141, 195-223.
    """
    intercept = numpyro.sample("intercept", dist.Normal(0, 5))
    of_factor = numpyro.sample("of_factor", dist.Normal(0, 1).expand([3]).to_event(1))
    of_age = numpyro.sample("of_age", dist.Normal(0, 1).expand([4]).to_event(1))
    concentration = numpyro.sample("concentration", dist.Exponential(0.2))
    factors = of_factor[0] * cultural + of_factor[1] * sex + of_factor[2] * slow
    mean = jnp.exp(intercept + factors + of_age[age])
    numpyro.sample("days", dist.NegativeBinomial2(mean, concentration).to_event(1), obs=days)


@_in_gallery
def remission(treated: Data, weeks: Data, censored: Data) -> None:
    """Weeks of remission of 42 leukaemia patients, 12 of them censored: Weibull times with a treatment.

    E. J. Freireich and others (1963), Blood 21, 699-716, who matched them in pairs, which is left out here.
    """
    intercept = numpyro.sample("intercept", dist.Normal(0, 5))
    effect = numpyro.sample("effect", dist.Normal(0, 2))
    shape = numpyro.sample("shape", dist.HalfNormal(2))
    scale = jnp.exp(intercept + effect * treated)
    log_survival = -((weeks / scale) ** shape)
    log_hazard = jnp.log(shape / scale) + (shape - 1) * jnp.log(weeks / scale)
    numpyro.factor("weeks", jnp.sum(log_survival + (1 - censored) * log_hazard))


@_in_gallery
def reaction(treated: Data, concentration: Data, rate: Data) -> None:
    """Velocity of an enzymatic reaction by concentration, with puromycin and without: Michaelis-Menten curves.

    M. A. Treloar (1974), in D. M. Bates and D. G. Watts, *Nonlinear Regression Analysis* (1988), A1.3.
    """
    limit = numpyro.sample("limit", dist.HalfNormal(500).expand([2]).to_event(1))
    half = numpyro.sample("half", dist.HalfNormal(1).expand([2]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(50))
    mean = limit[treated] * concentration / (half[treated] + concentration)
    numpyro.sample("rate", dist.Normal(mean, sigma).to_event(1), obs=rate)


@_in_gallery
def housing(
    influence: Data, kind: Data, contact: Data, satisfaction: Data, households: Data
) -> None:
    """Satisfaction of 1,681 households in Copenhagen, low, medium or high: an ordered logistic regression.

    M. Madsen (1976), Scand. J. Stat. 3, 97-106.
    """
    of_influence = numpyro.sample("of_influence", dist.Normal(0, 1).expand([2]).to_event(1))
    of_kind = numpyro.sample("of_kind", dist.Normal(0, 1).expand([3]).to_event(1))
    of_contact = numpyro.sample("of_contact", dist.Normal(0, 1))
    unordered = dist.Normal(0, 2).expand([2]).to_event(1)
    ordered = dist.TransformedDistribution(unordered, dist.transforms.OrderedTransform())
    cuts = numpyro.sample("cuts", ordered)
    zero = jnp.zeros(1)
    predictor = (
        jnp.append(zero, of_influence)[influence]
        + jnp.append(zero, of_kind)[kind]
        + of_contact * contact
    )
    with numpyro.handlers.scale(scale=households), numpyro.plate("cells", len(satisfaction)):
        numpyro.sample("satisfaction", dist.OrderedLogistic(predictor, cuts), obs=satisfaction)


@_in_gallery
def horse_kicks(deaths: Data, corps: Data) -> None:
    """Deaths by the kick of a horse in 14 Prussian corps in 20 years: are there more zeros than a Poisson law has?

    L. von Bortkiewicz, *Das Gesetz der kleinen Zahlen* (1898).
    """
    gate = numpyro.sample("gate", dist.Beta(1, 1))
    rate = numpyro.sample("rate", dist.Exponential(1))
    with numpyro.handlers.scale(scale=corps), numpyro.plate("numbers", len(deaths)):
        numpyro.sample("deaths", dist.ZeroInflatedPoisson(gate, rate), obs=deaths)


@_in_gallery
def rare_events(events: Data, patients: Data, treated: Data) -> None:
    """No event among 12 patients of the control, 5 among 12 treated (made up): the estimate is infinite.

    Cauchy priors after A. Gelman and others (2008), doi:10.1214/08-AOAS191, who centre the covariate first.
    """
    intercept = numpyro.sample("intercept", dist.Cauchy(0, 10))
    effect = numpyro.sample("effect", dist.Cauchy(0, 2.5))
    logits = intercept + effect * treated
    numpyro.sample("events", dist.Binomial(patients, logits=logits).to_event(1), obs=events)


@_in_gallery
def eruptions(minutes: Data) -> None:
    """Minutes to the next of 272 eruptions of Old Faithful: a mixture of two normal laws with exchangeable labels.

    W. Härdle, *Smoothing Techniques* (1991).
    """
    share = numpyro.sample("share", dist.Uniform(0, 1))
    mean = numpyro.sample("mean", dist.Normal(70, 20).expand([2]).to_event(1))
    # Minutes are whole numbers, some many times the same: the prior has to vanish where a standard deviation does.
    sd = numpyro.sample("sd", dist.LogNormal(2, 0.5).expand([2]).to_event(1))
    parts = dist.Categorical(probs=jnp.stack([share, 1 - share]))
    with numpyro.plate("eruptions", len(minutes)):
        numpyro.sample("minutes", dist.MixtureSameFamily(parts, dist.Normal(mean, sd)), obs=minutes)


@_in_gallery
def nile(flow: Data) -> None:
    """Yearly flow of the Nile at Aswan, 1871 to 1970: a Gaussian process with three unknown numbers.

    G. W. Cobb (1978), Biometrika 65, 243-251.
    """
    amplitude = numpyro.sample("amplitude", dist.HalfNormal(2))
    length = numpyro.sample("length", dist.InverseGamma(5, 50))
    noise = numpyro.sample("noise", dist.HalfNormal(2))
    years = jnp.arange(len(flow))
    apart = (years[:, None] - years) / length
    covariance = amplitude**2 * jnp.exp(-(apart**2) / 2) + noise**2 * jnp.eye(len(flow))
    scaled = (flow - flow.mean()) / flow.std()
    numpyro.sample("flow", dist.MultivariateNormal(0, covariance), obs=scaled)


@_in_gallery
def eight_schools(y: Data, error: Data) -> None:
    """Effects of coaching in eight schools, each with its standard error: means of a common normal law.

    D. B. Rubin (1981), J. Educ. Stat. 6, 377-401.
    """
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("schools", len(y)):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("y", dist.Normal(theta, error), obs=y)


@_in_gallery
def seeds(germinated: Data, planted: Data, kind: Data, extract: Data) -> None:
    """Seeds that germinate on 21 plates, of two kinds with two extracts: binomial counts with an effect of the plate.

    M. J. Crowder (1978), Appl. Stat. 27, 34-37, table 3; "Seeds" of BUGS.
    """
    intercept = numpyro.sample("intercept", dist.Normal(0, 2))
    slopes = numpyro.sample("slopes", dist.Normal(0, 2).expand([3]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    fixed = intercept + slopes[0] * kind + slopes[1] * extract + slopes[2] * kind * extract
    with numpyro.plate("plates", len(planted)):
        plate = numpyro.sample("plate", dist.Normal(0, sigma))
        numpyro.sample("germinated", dist.Binomial(planted, logits=fixed + plate), obs=germinated)


@_in_gallery
def pumps(failures: Data, hours: Data) -> None:
    """Failures of ten pumps of a power plant in their thousands of hours, whose rates have a gamma law.

    D. P. Gaver and I. G. O'Muircheartaigh (1987), Technometrics 29, 1-15; "Pumps" of BUGS.
    """
    alpha = numpyro.sample("alpha", dist.Exponential(1))
    beta = numpyro.sample("beta", dist.Gamma(0.1, 1))
    with numpyro.plate("pumps", len(failures)):
        rate = numpyro.sample("rate", dist.Gamma(alpha, beta))
        numpyro.sample("failures", dist.Poisson(rate * hours), obs=failures)


@_in_gallery
def baseball(first: Data, second: Data, won: Data, played: Data) -> None:
    """Games between seven teams in 1987: paired comparisons (Bradley and Terry), abilities of a normal law.

    The eastern division of the American League: A. Agresti, *Categorical Data Analysis* (2002), section 10.6.
    """
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    with numpyro.plate("teams", 7):
        ability = numpyro.sample("ability", dist.Normal(0, sigma))
    logits = ability[first] - ability[second]
    numpyro.sample("won", dist.Binomial(played, logits=logits).to_event(1), obs=won)


@_in_gallery
def lip_cancer(observed: Data, expected: Data, outdoors: Data) -> None:
    """Lip cancer in the 56 districts of Scotland: Poisson counts with a covariate and an effect of the district.

    D. Clayton and J. Kaldor (1987), Biometrics 43, 671-681.
    """
    intercept = numpyro.sample("intercept", dist.Normal(0, 2))
    slope = numpyro.sample("slope", dist.Normal(0, 2))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    with numpyro.plate("districts", len(expected)):
        district = numpyro.sample("district", dist.Normal(0, sigma))
        rate = expected * jnp.exp(intercept + slope * outdoors / 10 + district)
        numpyro.sample("observed", dist.Poisson(rate), obs=observed)


@_in_gallery
def coal(explosions: Data) -> None:
    """Explosions in British coal mines in 112 years: Poisson counts whose log rate is a random walk.

    R. G. Jarrett (1979), Biometrika 66, 191-193; by year.
    """
    sigma = numpyro.sample("sigma", dist.HalfNormal(0.5))
    start = numpyro.sample("start", dist.Normal(0, 2))
    walk = numpyro.sample("walk", dist.GaussianRandomWalk(sigma, num_steps=len(explosions)))
    numpyro.sample("explosions", dist.Poisson(jnp.exp(start + walk)).to_event(1), obs=explosions)


@_in_gallery
def mileage(x: Data, y: Data) -> None:
    """Miles per gallon of 32 cars by ten properties, few of which matter: a regression with a horseshoe prior.

    H. V. Henderson and P. F. Velleman (1981), Biometrics 37, 391-411.
    """
    scaled = (x - x.mean(0)) / x.std(0)
    intercept = numpyro.sample("intercept", dist.Normal(20, 10))
    sigma = numpyro.sample("sigma", dist.HalfNormal(5))
    tau = numpyro.sample("tau", dist.HalfCauchy(1))
    with numpyro.plate("properties", x.shape[1]):
        spread = numpyro.sample("spread", dist.HalfCauchy(1))
        slope = numpyro.sample("slope", dist.Normal(0, tau * spread))
    numpyro.sample("y", dist.Normal(intercept + scaled @ slope, sigma).to_event(1), obs=y)
