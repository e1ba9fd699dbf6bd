"""Saved and loaded: the same approximation, or an error that teaches."""

import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import laplacebook as lb
from tests.model.test_density import Y, several
from tests.models import coin, normal, single_precision

COIN = np.repeat([1.0, 0.0], [8, 1])
#: `square` at 4.0, several starts, in double precision, from when the package was one folder
BEFORE_THE_ROOMS = Path(__file__).with_name("saved_before_the_rooms.npz")


def square(y):
    x = numpyro.sample("x", dist.Normal(0, 3))
    numpyro.sample("y", dist.Normal(x**2, 1), obs=y)


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "coin.npz"
    lb.laplace(coin, COIN).save(path)
    return path


@pytest.mark.parametrize(
    ("model", "args", "options"),
    [
        (coin, (COIN, 3.0), {"space": "constrained"}),
        (several, (Y,), {}),
    ],
)
def test_round_trip(tmp_path, model, args, options):
    approx, path = lb.laplace(model, *args, **options), tmp_path / "approx.npz"
    approx.save(str(path))
    loaded = lb.load(path, model, *args)
    leaves, others = jax.tree.leaves(approx), jax.tree.leaves(loaded)
    for mine, other in zip(leaves, others, strict=True):
        np.testing.assert_allclose(other, mine, rtol=1e-12)
        assert mine.dtype == other.dtype
    assert repr(loaded) == repr(approx)
    draws, again = (a.sample(jax.random.key(0), (5,)) for a in (approx, loaded))
    for name in draws:
        np.testing.assert_allclose(again[name], draws[name], rtol=1e-12)


@pytest.fixture(scope="module")
def two_modes():
    """What several starts find, without a search of several."""
    first, other = (lb.laplace(square, 4.0, start={"x": x}) for x in (-2.0, 2.0))
    return replace(first, other_modes=(other,))


def test_a_file_of_an_earlier_package_is_read(two_modes):
    """What readers have saved stays readable, with the numbers that were in it."""
    loaded = lb.load(BEFORE_THE_ROOMS, square, 4.0)
    assert loaded.log_evidence == pytest.approx(-3.6175310747054534, rel=1e-12)
    assert len(loaded.other_modes) == 1
    for old, new in zip(
        (loaded, *loaded.other_modes), (two_modes, *two_modes.other_modes), strict=True
    ):
        assert old.certificate.converged and old.settings == new.settings
        assert old.mode_vector.dtype == new.mode_vector.dtype
        np.testing.assert_allclose(old.mode["x"], new.mode["x"], rtol=1e-8)
        np.testing.assert_allclose(old.precision.matrix, new.precision.matrix, rtol=1e-8)
        for name in ("log_evidence", "log_likelihood", "log_prior"):
            np.testing.assert_allclose(getattr(old, name), getattr(new, name), rtol=1e-7)


def test_other_modes_are_in_the_file(two_modes, tmp_path):
    approx, path = two_modes, tmp_path / "square.npz"
    approx.save(path)
    loaded = lb.load(path, square, 4.0)
    assert jax.tree.structure(loaded) == jax.tree.structure(approx)
    for mine, its in zip(jax.tree.leaves(loaded), jax.tree.leaves(approx), strict=True):
        np.testing.assert_allclose(mine, its, rtol=1e-12)
    assert loaded.mode["x"] < 0 < loaded.other_modes[0].mode["x"]
    rewritten(path, "other/0/along", lambda x: 1.02 * x)
    refused(path, square, 4.0, match="curvature differs")
    rewritten(path, "header", with_header(other_modes=2))
    refused(path, square, 4.0, match="not a whole file")


def test_nothing_in_the_file_is_pickled(saved):
    with np.load(saved, allow_pickle=False) as archive:
        header = json.loads(str(archive["header"]))
        assert not any(archive[name].dtype.hasobject for name in archive.files)
    assert header["format_version"] == 1
    assert header["model"] == "coin"
    assert header["sites"] == [["theta", [], []]]


def refused(path, *model_and_arguments, match):
    with pytest.raises(lb.LaplaceError) as caught:
        lb.load(path, *model_and_arguments)
    assert match in " ".join(str(caught.value).split())
    assert "What to do:" in str(caught.value)


def test_other_data_or_another_model_is_refused(saved):
    refused(saved, coin, 1 - COIN, match="of other data")
    refused(saved, coin, COIN, 2.5, match="of other data")
    refused(saved, normal, COIN, match="latent sites are 'theta' of shape ()")


def test_other_data_with_the_same_log_joint_are_refused(tmp_path):
    def centred(y):
        w = numpyro.sample("w", dist.Uniform(-10, 10))
        numpyro.sample("y", dist.Normal(w, 1).expand([2]).to_event(1), obs=y)

    approx, path = lb.laplace(centred, np.array([1.0, 2.0])), tmp_path / "w"
    approx.save(path)
    mirrored = 2 * float(approx.mode["w"]) - np.array([1.0, 2.0]) + 1e-12
    assert lb.load(path, centred, np.array([2.0, 1.0])).mode["w"] == approx.mode["w"]
    apart = float(approx.mode["w"]) + np.sqrt(np.sum((mirrored - float(approx.mode["w"])) ** 2) / 2)
    refused(path, centred, np.array([apart, apart]), match="standard deviations away")


def test_every_damaged_byte_is_noticed_or_does_not_matter(saved):
    whole, right = saved.read_bytes(), lb.load(saved, coin, COIN)
    for place in np.random.default_rng(0).choice(len(whole), 150, replace=False):
        damaged = bytearray(whole)
        damaged[place] ^= 0x55
        saved.write_bytes(damaged)
        try:
            loaded = lb.load(saved, coin, COIN)
        except lb.LaplaceError:
            continue
        assert all(map(np.array_equal, jax.tree.leaves(loaded), jax.tree.leaves(right)))


def test_a_file_that_is_cut_short_empty_or_missing(saved, tmp_path):
    whole = saved.read_bytes()
    for length in (0, 10, len(whole) // 2, len(whole) - 1):
        saved.write_bytes(whole[:length])
        refused(saved, coin, COIN, match="not a whole file of a saved approximation")
    with pytest.raises(FileNotFoundError):
        lb.load(tmp_path / "nothing", coin, COIN)


class Trap:
    def __reduce__(self):
        return pytest.fail, ("a pickle was executed",)


FOREIGN = {
    "no array": lambda path: np.savez(path),
    "other arrays": lambda path: np.savez(path, x=np.ones(3)),
    "a pickle": lambda path: np.savez(path, header=np.array([Trap()])),
    "text": lambda path: path.write_bytes(b"a,b\n1,2\n"),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_foreign_files(tmp_path, kind):
    path = tmp_path / "foreign.npz"
    FOREIGN[kind](path)
    refused(path, coin, COIN, match="another program wrote it")


def rewritten(path, name, change):
    """The same archive with one array changed."""
    with np.load(path) as archive:
        arrays = {n: archive[n] for n in archive.files}
    arrays[name] = change(arrays.get(name))
    np.savez(path, **arrays)


def with_header(**changes):
    return lambda header: np.array(json.dumps(json.loads(str(header)) | changes))


def test_a_newer_format(saved):
    rewritten(saved, "header", with_header(format_version=2, laplacebook_version="9.0"))
    refused(saved, coin, COIN, match="laplacebook 9.0 wrote it")
    newer = {"settings": {"option": 1}, "laplacebook_version": "9.0"}
    rewritten(saved, "header", with_header(format_version=1, **newer))
    refused(saved, coin, COIN, match="laplacebook 9.0 wrote it, and this is")


def test_an_error_of_the_program_is_not_taken_for_damage(saved, monkeypatch):
    def broken(arrays):
        raise AttributeError("of the program")

    monkeypatch.setattr("laplacebook.fit.saved_file.from_arrays", broken)
    with pytest.raises(AttributeError, match="of the program"):
        lb.load(saved, coin, COIN)


CONTRADICTIONS = {
    "sites": ("header", with_header(sites=[["theta", [2], [2]]])),
    "space": ("header", with_header(space="logit")),
    "fields": ("header", with_header(certificate=["nonsense"])),
    "text": ("header", lambda header: np.array("not JSON")),
    "length": ("mode_vector", lambda u: np.ones(3)),
    "moved": ("mode_vector", lambda u: u + 0.1),
    "mode": ("mode/theta", lambda theta: theta + 1e-3),
    "shape": ("mode/theta", lambda theta: np.ones(2)),
    "sign": ("precision/DensePrecision/matrix", lambda a: -a),
    "nan": ("precision/DensePrecision/matrix", lambda a: a * np.nan),
    "structure": ("precision/DiagonalPrecision/diagonal", lambda a: np.ones(1)),
    "bent": ("along", lambda x: 1.02 * x),
    "prior": ("log_prior", lambda x: x + 1e-3),
    "failed": ("certificate/converged", lambda x: np.array(False)),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_numbers_that_contradict_each_other(saved, case):
    rewritten(saved, *CONTRADICTIONS[case])
    with pytest.raises(lb.LaplaceError):
        lb.load(saved, coin, COIN)


def test_what_is_not_saved(tmp_path):
    failed = lb.laplace(coin, np.append(COIN[1:], np.nan), throw=False)
    with pytest.raises(lb.NotConverged, match="nothing to save"):
        failed.save(tmp_path / "failed")
    one = lb.laplace(coin, COIN)
    batch = jax.tree.map(lambda x: jnp.stack([x, x]), one)  # as jax.vmap returns it
    with pytest.raises(ValueError, match="within jax.vmap"):
        batch.save(tmp_path / "batch")
    plain = lb.laplace_of_density(lambda z: -((z - 1) ** 2), 0.0)
    with pytest.raises(lb.UnsupportedModel, match=r"numpyro\.factor"):
        plain.save(tmp_path / "plain")
    assert not list(tmp_path.iterdir())


def test_float64_is_not_truncated(saved):
    with single_precision():
        refused(saved, coin, COIN, match="enable_x64")


def test_deflated_by_another_tool(saved):
    packed = io.BytesIO()
    with zipfile.ZipFile(saved) as old, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    saved.write_bytes(packed.getvalue())
    assert lb.load(saved, coin, COIN).mode["theta"] == pytest.approx(10 / 13)


def test_a_flat_prior(tmp_path):
    def model(y, curvature=1.0):
        x = numpyro.sample("x", dist.ImproperUniform(dist.constraints.real, (), ()))
        numpyro.factor("bowl", -curvature * (x - y) ** 2)

    approx, path = lb.laplace(model, 2.0, np.array(1.0)), tmp_path / "flat"
    approx.save(path)
    assert lb.load(path, model, 2.0, np.array(1.0)).mode["x"] == approx.mode["x"]
    refused(path, model, 2.0, np.array(5.0), match="curvature differs by 4")


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(lb.LaplaceError, match=r"is\s+a\s+folder,\s+not\s+the\s+file"):
        lb.load(tmp_path, coin, COIN)
    (tmp_path / "empty").touch()
    with pytest.raises(lb.LaplaceError, match=r"is\s+not\s+a\s+whole\s+file"):
        lb.load(tmp_path / "empty", coin, COIN)
