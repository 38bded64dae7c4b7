"""A fit on disk: the same numbers back, the same bytes for the same fit, and nothing else accepted."""

from __future__ import annotations

import json
import zipfile
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ew_pipeline import EntrywiseDetector
from ew_pipeline.core.errors import EwError, UsageError
from ew_pipeline.core.provenance import canonical_hash, file_hash
from ew_pipeline.method.anomalies import Thinning
from ew_pipeline.method.sales_matrix import SalesMatrix
from ew_pipeline.method.theta import Theta
from ew_pipeline.tracking.files import read_arrays, write_arrays
from ew_pipeline.tracking.model import load_model, save_model


class Mine(Thinning):
    """A user's own family."""

    name = "mine"


def assert_same(one, other):
    for item in fields(one):
        ours, theirs = getattr(one, item.name), getattr(other, item.name)
        if isinstance(ours, np.ndarray):
            np.testing.assert_array_equal(ours, theirs, err_msg=item.name)
            assert ours.dtype == theirs.dtype, item.name
        elif isinstance(ours, SalesMatrix) or item.name == "factors_":
            assert_same(ours, theirs)
        else:
            assert ours == theirs, item.name


@pytest.mark.parametrize("mode", ["variational", "fast", "paper"])
@pytest.mark.parametrize("with_level", [False, True], ids=["cross-section", "history"])
def test_every_number_of_a_fit_comes_back(mode, with_level, sales, tmp_path):
    level = np.linspace(0.5, 3.0, sales.n_observed) if with_level else None
    fit = EntrywiseDetector(mode=mode, probability="drop" if with_level else "posterior").fit(sales, level)
    saved = load_model(save_model(fit, tmp_path / "model", level=level))
    assert_same(fit, saved.fit)
    np.testing.assert_array_equal(saved.fit.anomaly_probability_, fit.anomaly_probability_)
    assert not saved.fit.posterior_.flags.writeable
    assert saved.versions["numpy"] == np.__version__
    if with_level:
        np.testing.assert_array_equal(saved.level, level)
    else:
        assert saved.level is None


def test_numbers_that_json_has_no_word_for_come_back(fit, tmp_path):
    wide = Theta(0.3, 0.1, (0.0, np.inf), (0.0, 1.0), at_bound=False, identified=False, reason="flat")
    odd = replace(fit, theta_=wide, null_gain_=-np.inf, dispersion_size_=np.inf)
    assert_same(odd, load_model(save_model(odd, tmp_path)).fit)


def test_equal_fits_are_equal_bytes(fit, sales, tmp_path):
    again = EntrywiseDetector(mode="variational").fit(sales)
    first, second = save_model(fit, tmp_path / "a"), save_model(again, tmp_path / "b")
    for name in ("model.json", "arrays.npz"):
        assert (first / name).read_bytes() == (second / name).read_bytes()
    with zipfile.ZipFile(first / "arrays.npz") as archive:  # a clock would tell them apart tomorrow
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    assert load_model(first).sha256 == load_model(second).sha256


def test_fits_that_are_equal_by_copies_are_equal_bytes(fit, tmp_path):
    """A fit that was read back holds two arrays where the one that was made may hold one."""
    shared = replace(fit, cavity_sales_=fit.expected_sales_)
    copied = replace(fit, cavity_sales_=fit.expected_sales_.copy())
    first, second = save_model(shared, tmp_path / "a"), save_model(copied, tmp_path / "b")
    for name in ("model.json", "arrays.npz"):
        assert (first / name).read_bytes() == (second / name).read_bytes()
    assert_same(shared, load_model(second).fit)


def test_only_arrays_of_the_same_type_and_shape_are_kept_as_one(tmp_path):
    zeros = np.zeros(8)
    names = write_arrays(
        tmp_path / "a.npz", {"a": zeros, "b": zeros.reshape(2, 4), "c": zeros.astype(np.int64), "d": -zeros}
    )
    assert [names[name]["kept_as"] for name in "abcd"] == ["a", "b", "c", "d"]


def test_another_probability_is_another_model(fit, tmp_path):
    moved = np.array(fit.posterior_)
    moved[0] = np.nextafter(moved[0], 1.0)
    one = load_model(save_model(fit, tmp_path / "a"))
    other = load_model(save_model(replace(fit, posterior_=moved), tmp_path / "b"))
    assert one.sha256 != other.sha256


def test_the_arrays_hold_no_python_objects(fit, tmp_path):
    save_model(fit, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["arrays.npz", "model.json"]
    with np.load(tmp_path / "arrays.npz", allow_pickle=False) as arrays:
        assert all(arrays[name].dtype.kind in "iufU" for name in arrays.files)


def test_a_model_of_the_first_format_is_read(fit, tmp_path):
    """Every array as it is, under its own name."""
    save_model(fit, tmp_path)
    whole = {
        "store_ids": fit.sales.store_ids, "sku_ids": fit.sales.sku_ids, "indptr": fit.sales.indptr,
        "cols": fit.sales.cols, "counts": fit.sales.counts, "posterior": fit.posterior_,
        "expected_sales": fit.expected_sales_, "expected_cv": fit.expected_cv_,
        "cavity_sales": fit.cavity_sales_, "cavity_cv": fit.cavity_cv_,
        "left": fit.factors_.left, "right": fit.factors_.right,
    }  # fmt: skip
    np.savez(tmp_path / "arrays.npz", **whole)
    kept = {"file": "arrays.npz", "sha256": file_hash(tmp_path / "arrays.npz"), "names": sorted(whole)}
    forge(format=1, arrays=kept)(tmp_path)
    assert_same(fit, load_model(tmp_path).fit)


numbers = hnp.arrays(np.float64, st.integers(0, 40), elements=st.floats(width=32) | st.floats())
counts = hnp.arrays(
    st.sampled_from([np.int32, np.int64, np.uint8]), st.integers(0, 40), elements=st.integers(0, 200)
)


@given(numbers, counts | hnp.arrays(np.int64, 3, elements=st.integers(-(2**63), 2**63 - 1)))
def test_arrays_come_back_in_their_own_type_whatever_they_are_kept_in(tmp_path_factory, one, other):
    path = tmp_path_factory.mktemp("arrays") / "arrays.npz"
    names = write_arrays(path, {"one": one, "other": other, "the same": one})
    described = {"format": 2, "arrays": {"sha256": file_hash(path), "names": names}}
    read = read_arrays(path, described)
    for name, array in (("one", one), ("other", other), ("the same", one)):
        np.testing.assert_array_equal(read[name], array)
        assert read[name].dtype == array.dtype
    np.testing.assert_array_equal(np.signbit(read["one"]), np.signbit(one))
    with np.load(path) as kept:
        assert sorted(kept.files) == ["one", "other"]


def test_numbers_are_kept_as_narrow_as_they_are(tmp_path):
    exact, not_exact = np.array([0.5, np.nan, np.inf]), np.array([0.5, 0.1])
    write_arrays(
        tmp_path / "a.npz", {"a": exact, "b": not_exact, "c": np.array([0, 255]), "d": np.array([-1, 1])}
    )
    with np.load(tmp_path / "a.npz") as kept:
        assert [kept[name].dtype.str for name in "abcd"] == ["<f4", "<f8", "|u1", "|i1"]


def test_saving_again_replaces_the_model(fit, sales, tmp_path):
    save_model(fit, tmp_path, level=np.ones(sales.n_observed))
    save_model(replace(fit, rank_=99), tmp_path)
    saved = load_model(tmp_path)
    assert (saved.fit.rank_, saved.level) == (99, None)


def cut_short(folder: Path) -> None:
    data = (folder / "arrays.npz").read_bytes()
    (folder / "arrays.npz").write_bytes(data[: len(data) // 2])


def flip_a_bit(folder: Path) -> None:
    data = bytearray((folder / "arrays.npz").read_bytes())
    data[len(data) // 2] ^= 1
    (folder / "arrays.npz").write_bytes(data)


def edit_theta(folder: Path) -> None:
    described = json.loads((folder / "model.json").read_text())
    described["theta"]["alpha"] = 0.9
    (folder / "model.json").write_text(json.dumps(described))


def forge(**changes: object):
    def change(folder: Path) -> None:
        described = json.loads((folder / "model.json").read_text()) | changes
        described.pop("sha256")
        described["sha256"] = canonical_hash(described)
        (folder / "model.json").write_text(json.dumps(described))

    return change


DAMAGE = {
    "no arrays": (lambda folder: (folder / "arrays.npz").unlink(), "arrays.npz is missing"),
    "no description": (lambda folder: (folder / "model.json").unlink(), "model.json is missing"),
    "arrays cut short": (cut_short, "arrays.npz is not the file"),
    "a bit flipped": (flip_a_bit, "arrays.npz is not the file"),
    "theta edited": (edit_theta, "model.json was changed"),
    "not json": (lambda folder: (folder / "model.json").write_text("{"), "model.json is not JSON"),
    "binary": (lambda folder: (folder / "model.json").write_bytes(b"\xff\xfe\x00"), "model.json is not JSON"),
    "another json": (lambda folder: (folder / "model.json").write_text('{"rank": 2}'), "does not describe"),
    "a later format": (forge(format=3), "has format 3"),
    "a wrong shape": (forge(shape=[2, 2]), "model.json does not describe a model"),
    "theta gone": (forge(theta={}), "model.json does not describe a model"),
    "arrays unnamed": (forge(arrays={}), "arrays.npz does not hold"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_model_is_refused_by_the_name_of_its_file(damage, fit, tmp_path):
    break_it, words = DAMAGE[damage]
    break_it(save_model(fit, tmp_path / "model"))
    with pytest.raises(EwError, match=words):
        load_model(tmp_path / "model")


def test_a_folder_that_cannot_be_written_is_named(fit, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(EwError, match=r"cannot be written into .*file/model") as caught:
        save_model(fit, tmp_path / "file" / "model")
    assert caught.value.next_step


def test_a_level_of_another_length_is_refused(fit, tmp_path):
    with pytest.raises(UsageError, match=r"level has shape \(3,\)"):
        save_model(fit, tmp_path, level=[1.0, 1.0, 1.0])


def test_a_model_of_ones_own_is_known_by_name(fit, sales, tmp_path):
    own = replace(fit, anomaly_model=Mine(), anomaly_="mine")
    save_model(own, tmp_path)
    long = pd.DataFrame(sales.to_long())
    by_name = load_model(tmp_path)
    np.testing.assert_array_equal(by_name.predict(long)["anomaly_probability"], fit.posterior_)
    with pytest.raises(UsageError, match=r"'mine' is not one of ours(.|\n)*anomaly=your_model"):
        by_name.predict(long.assign(units=long["units"] + 1))
    given = load_model(tmp_path, anomaly=Mine())
    assert given.predict(long.assign(units=long["units"] + 1))["anomaly_probability"].notna().all()
    with pytest.raises(UsageError, match="fitted with the anomaly model 'mine', not 'thinning'"):
        load_model(tmp_path, anomaly=Thinning())
