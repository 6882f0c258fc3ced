"""scripts/projects.py tells equal runs from others, and rounding from faults."""

import dataclasses

import numpy as np
import pytest

VALUES = {"loss": np.ones(3), "weight": np.arange(6.0).reshape(2, 3)}


@pytest.fixture
def projects(import_script):
    return import_script("projects")


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (VALUES, ""),
        ({**VALUES, "loss": np.full(3, 1.0001)}, ""),
        ({**VALUES, "loss": np.full(3, 1.01)}, "loss: differs by up to 0.01"),
        ({"loss": np.ones(3)}, r"results ['weight'] are only in one"),
        ({**VALUES, "weight": np.ones((3, 2))}, "weight: shape (3, 2), plainly (2, 3)"),
        ({**VALUES, "loss": np.array([1, np.nan, 1])}, "loss: differs by up to 0"),
    ],
)
def test_differences_are_named(projects, found, text):
    assert projects.difference(VALUES, found) == text


def test_rounding_is_no_more_than_plain_runs_differ(projects):
    def shifted(by):
        return projects.Run("", {**VALUES, "loss": VALUES["loss"] + by}, [], 0.0)

    assert projects.is_rounding(shifted(0), shifted(0.02), shifted(0.01))
    assert not projects.is_rounding(shifted(0), shifted(0.02), shifted(0.001))
    failed = dataclasses.replace(shifted(0.01), error="it ended")
    assert not projects.is_rounding(shifted(0), shifted(0.02), failed)


@pytest.mark.parametrize(
    ("apart", "outcome"),
    [
        (1e-9, "rounding (loss: differs by up to 5; in float64 by up to 1e-09)"),
        (1e-3, "loss: differs by up to 5"),
        (np.nan, "loss: differs by up to 5"),
    ],
)
def test_nets_that_differ_in_float32_are_compared_in_float64(
    projects, tmp_path, monkeypatch, apart, outcome
):
    def run(case, folder, workers, timeout_s, *more):
        by = (apart if "float64" in more else 5) if workers else 0
        return projects.Run("", {**VALUES, "loss": VALUES["loss"] + by}, [], 0.0)

    monkeypatch.setattr(projects, "run", run)
    result = projects.compare("gluoncv2/resnet10", tmp_path, [2], 1)
    assert result["runs"]["2"]["outcome"] == outcome
    result = projects.compare("d2l/gru", tmp_path, [2], 1)
    assert result["runs"]["2"]["outcome"] == "loss: differs by up to 5"


def test_another_version_is_named(projects, tmp_path):
    folder = tmp_path / "gluoncv2-0.0.1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: gluoncv2\nVersion: 0.0.1\n")
    cases = ["gluoncv2/resnet10", "d2l/gru", "single_path/eager"]
    assert list(projects.wrong_versions(tmp_path, cases)) == [
        f"d2l: found none in {tmp_path}, expected {projects.VERSIONS['d2l']}",
        f"gluoncv2: found 0.0.1 in {tmp_path}, expected {projects.VERSIONS['gluoncv2']}",
    ]


@pytest.mark.whole
def test_a_net_whose_path_changes_trains_alike(projects, tmp_path):
    result = projects.compare("single_path/hybridized", tmp_path, [2], 300)
    assert result["runs"]["2"]["outcome"] == "equal"
