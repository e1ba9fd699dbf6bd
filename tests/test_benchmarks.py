"""The benchmarks run, compare modes and report; no time is asserted here."""

import json
from types import SimpleNamespace

import pytest

from benchmarks import __main__ as command
from benchmarks import evidence, first_calls, gaussian, predictive, report, runner
from benchmarks.fits import measure
from benchmarks.runner import Call, Row


def ours():
    """Stands for a measurement of this package."""


def peer():
    """Stands for a measurement of a peer."""


ROW = Row("a fit", Call(ours), Call(peer), "a peer", "next", "other")


def rounds(sample_of):
    """A runner whose n-th sample of a measurement is made by a function of n."""
    counts = {ours: 0, peer: 0}

    def run(call):
        counts[call.function] += 1
        return sample_of[call.function](counts[call.function])

    return run


FAKE = {
    ours: lambda n: {"next": {1: 5.0, 2: 1.0, 3: 2.0}[n], "mode": [1.0, 2.0], "sd": [0.5, 0.1]},
    peer: lambda n: {"other": 4.0, "mode": [1.0, 2.02]},
}


def test_a_result_is_a_ratio_of_medians_with_the_distance_of_the_modes():
    (found,) = runner.results([ROW], 3, rounds(FAKE))
    assert (found.ours, found.peer, found.ratio) == (2.0, 4.0, 0.5)
    assert found.apart == pytest.approx(0.2)
    assert found.ours_rounds == [5.0, 1.0, 2.0]


def test_a_peer_without_a_mode_has_no_distance():
    (found,) = runner.results([ROW], 1, rounds(FAKE | {peer: lambda n: {"other": 4.0}}))
    assert found.apart is None
    assert report.cells(found) == ("a fit", "a peer", "5 s", "4 s", "1.25", "")


def test_a_peer_that_is_not_installed_leaves_its_columns_empty():
    (found,) = runner.results([ROW._replace(peer=None)], 1, rounds(FAKE))
    assert report.cells(found) == ("a fit", "a peer", "5 s", "", "", "")


def test_a_long_measurement_is_not_repeated(monkeypatch):
    monkeypatch.setattr(runner, "ENOUGH", 1e-9)
    assert runner.sampled([Call(ours)], 3, lambda call: {}) == {Call(ours): [{}]}


def test_the_command_writes_json_and_markdown(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(runner, "run_alone", rounds(FAKE))
    subject = SimpleNamespace(TITLE="A subject", rows=lambda quick: [ROW])
    monkeypatch.setattr(command, "SUBJECTS", {"fake": subject})
    command.main(["fake", "--rounds", "3", "--output", str(tmp_path)])
    record = json.loads((tmp_path / "latest.json").read_text())
    assert record["tables"]["A subject"][0]["ratio"] == 0.5
    assert record["setting"].keys() >= {"date", "device", "cores", "jax", "scikit-learn"}
    line = "| a fit | a peer  | 2 s  | 4 s  | 0.5       | 2e-01            |"
    assert line in (tmp_path / "latest.md").read_text()
    out = capsys.readouterr().out
    assert (
        "| a fit | a peer  | 2 s          | 4 s          | 0.5          | 2e-01            |" in out
    )


def test_each_row_is_printed_and_written_before_the_next_is_measured(tmp_path, monkeypatch, capsys):
    seen = []

    def run(call):
        file = tmp_path / "latest.md"
        text = file.read_text() if file.exists() else ""
        seen.append((call.arguments, *("| first " in x for x in (capsys.readouterr().out, text))))
        return {"next": 1.0}

    row = Row("first", Call(ours, (1,)), Call(peer), "a peer", "next")
    both = [row, row._replace(what="second", ours=Call(ours, (2,)))]
    monkeypatch.setattr(runner, "run_alone", run)
    subject = SimpleNamespace(TITLE="A subject", rows=lambda quick: both)
    monkeypatch.setattr(command, "SUBJECTS", {"fake": subject})
    command.main(["fake", "--rounds", "1", "--output", str(tmp_path)])
    # What the two rows share is measured once.
    assert seen == [((1,), False, False), ((), False, False), ((2,), True, True)]


def test_the_command_line_chooses():
    assert command.options([]).subjects == []
    assert command.options(["coin", "memory", "--quick"]).subjects == ["coin", "memory"]
    with pytest.raises(SystemExit):
        command.options(["dice"])


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("subject", command.SUBJECTS)
def test_rows_are_distinct_and_their_calls_can_be_sent(subject, quick):
    rows = command.SUBJECTS[subject].rows(quick)
    assert len({(row.what, row.against) for row in rows}) == len(rows)
    for call in {call for row in rows for call in (row.ours, row.peer) if call}:
        assert call.function.__module__.startswith("benchmarks.")
        assert eval(repr(call.arguments)) == call.arguments


def test_a_real_row_agrees():
    """A peer in a process of its own, as all are measured."""
    peer = runner.run_alone(Call(measure, ("scikit_learn", "logistic", 500, 3)))
    ours = measure("laplacebook", "logistic", 500, 3)
    assert runner.distance(ours, peer) < 1e-3


def test_first_fits_by_hand_find_the_mode_of_the_hierarchical_model():
    ours, peer = (first_calls.fit(way, "schools") for way in ("laplacebook", "scipy_by_hand"))
    assert runner.distance(ours, peer) < 1e-4
    assert peer["sd"] == pytest.approx(ours["sd"], rel=1e-4)


def test_every_first_call_is_beside_nuts_or_says_why_not():
    rows = first_calls.rows(quick=True)
    against = {row.against for row in rows if row.key == "first"}
    assert set(first_calls.PEERS.values()) < against
    alone = {row.against for row in rows if row.peer is None}
    assert alone <= {"laplace-torch (not installed)"}


@pytest.mark.parametrize("function", ["predict", "compare"])
def test_what_follows_a_fit_is_timed_twice(function):
    found = first_calls.after_a_fit(function)
    assert found.keys() == {"first", "next"}
    assert min(found.values()) > 0


@pytest.mark.parametrize(
    ("ours", "by_hand", "size", "tolerance"),
    [
        (evidence.prior_draws, evidence.prior_draws_by_hand, (50_000,), {"abs": 0.05}),
        (
            evidence.importance_draws,
            evidence.importance_draws_by_hand,
            (2_000, 100, 3),
            {"abs": 0.05},
        ),
        (gaussian.theorem, gaussian.theorem_by_hand, (10, 20), {"rel": 1e-10}),
        (predictive.quadrature, predictive.by_hand, (50, 3), {"abs": 0.01}),
    ],
)
def test_what_is_computed_by_hand_is_what_the_package_computes(ours, by_hand, size, tolerance):
    assert ours(*size)["value"] == pytest.approx(by_hand(*size)["value"], **tolerance)
