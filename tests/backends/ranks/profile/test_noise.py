"""What counts as different."""

from __future__ import annotations

import numpy as np
import pytest

from weft.backends.ranks.profile.noise import classes


def drawn(centres, sweeps, noise, seed):
    rng = np.random.default_rng(seed)
    return np.log(np.array(centres, float))[:, None] + noise * rng.standard_normal(
        (len(centres), sweeps)
    )


@pytest.mark.parametrize("noise", [0.0, 0.02, 0.2, 0.5])
def test_noise_alone_tells_nothing_apart(noise):
    found = [len(set(classes(drawn([5.0] * 40, 8, noise, seed)).tolist())) for seed in range(40)]
    assert found == [1] * 40


@pytest.mark.parametrize("noise", [0.0, 0.05, 0.2])
def test_two_kinds_are_found(noise):
    for seed in range(20):
        label = classes(drawn([3, 9, 3, 9, 9, 3], 8, noise, seed))
        assert label.tolist() == [0, 1, 0, 1, 1, 0]


def test_three_kinds():
    centres = [1] * 5 + [2] * 3 + [8]
    assert classes(drawn(centres, 10, 0.05, 3)).tolist() == [0] * 5 + [1] * 3 + [2]


def test_what_matters_little_is_alike():
    assert set(classes(drawn([10, 10.5, 11], 6, 0.0, 0)).tolist()) == {0}


def test_a_disturbance_of_half_the_time_is_no_difference():
    samples = drawn([5.0] * 20, 10, 0.05, 1)
    samples[:7, :5] += 0.6
    assert set(classes(samples).tolist()) == {0}


def test_what_slows_a_whole_sweep_is_no_noise_of_one():
    samples = drawn([4, 4, 4, 5.5, 5.5, 5.5], 9, 0.01, 2)
    samples += np.linspace(0, 2, 9)
    assert classes(samples).tolist() == [0, 0, 0, 1, 1, 1]
