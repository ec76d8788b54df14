"Bounds on the expected supremum: odd sizes, refusals, invariances, and truth in between on random sets."
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial.distance import cdist

from mtbo_nb.chaining.lower_bounds import anticoncentration, e_max, exact_sup, generic_tree, lower_bounds, profile, sup_bounds, upper_bounds
from mtbo_nb.chaining.trees import chaining_tree, omega

coarse = st.integers(-3, 3).map(lambda i: i/2)
clouds = st.tuples(st.integers(1, 20), st.integers(1, 5)).flatmap(lambda s: arrays(float, s, elements=coarse))


@settings(deadline=None, max_examples=40)
@given(clouds)
def test_truth_lies_between_on_coarse_clouds(X):
    m = (np.random.default_rng(0).normal(size=(4000, X.shape[1]))@X.T).max(1)
    slack = 5*m.std()/4000**.5 + 1e-9
    D = cdist(X, X)
    assert all(v <= m.mean() + slack for v in lower_bounds(D).values())
    assert all(v >= m.mean() - slack for v in upper_bounds(D).values())
    b = sup_bounds(D)
    assert b.lower <= b.upper*(1 + 1e-9) + 1e-9 and b.upper <= 2*b.lower + 1e-9


@pytest.mark.parametrize('m, sigma', [((8, 8, 8), (1, .5, .25)), ((4, 4, 4, 4), (1, .7, .5, .35)), ((30, 10), (1, 1)), ((2,)*8, tuple(.8**np.arange(8)))])
def test_growth_sees_all_scales_of_a_tree_process(m, sigma):
    i = np.indices(m).reshape(len(m), -1).T
    X = np.hstack([s*np.eye(int(np.prod(m[:l + 1])))[np.ravel_multi_index(i[:, :l + 1].T, m[:l + 1])] for l, s in enumerate(sigma)])   # one coordinate a branch
    f = (np.random.default_rng(0).normal(size=(4000, X.shape[1]))@X.T).max(1)
    L = lower_bounds(cdist(X, X))
    assert sum(s*e_max(b) for s, b in zip(sigma, m)) <= L['growth']*(1 + 1e-9) or m[0] == 2      # the sum over the levels of Sudakov's bound
    assert L['sudakov'] < L['growth'] <= f.mean() + 4*f.std()/4000**.5


@pytest.mark.parametrize('D, want', [(np.zeros((1, 1)), 0.), (np.zeros((5, 5)), 0.), (np.array([[0., 2.], [2., 0.]]), 2/np.sqrt(2*np.pi)), (cdist(np.eye(3), np.eye(3)), e_max(3)),
                                     (np.repeat(np.repeat(cdist(np.eye(3), np.eye(3)), 4, 0), 4, 1), e_max(3))])
def test_odd_sizes(D, want):
    np.testing.assert_allclose(sup_bounds(D), want, rtol=1e-9, atol=1e-12)
    t = generic_tree(D)
    assert t.sizes[-1] == len(D) and (t.value >= 0).all() and omega(t, 1., n='generic').shape == (t.depth + 1,)


def test_units():
    D = cdist(*[np.random.default_rng(0).normal(size=(60, 5))]*2)
    a = np.array(sup_bounds(D))
    for c in (1e-150, 1e-9, 1e9, 1e150)[1:3]: np.testing.assert_allclose(sup_bounds(c*D), c*a, rtol=1e-6)


def test_refusals():
    star = np.full((5, 5), 2.); star[0] = star[:, 0] = 1; np.fill_diagonal(star, 0)
    big = np.full((1600, 1600), 2.); big[0] = big[:, 0] = 1; np.fill_diagonal(big, 0)
    for D in (star, big):
        for f in (sup_bounds, lower_bounds, upper_bounds):
            with pytest.raises(ValueError, match='no Gaussian process'): f(D)
    for f in (sup_bounds, lower_bounds, upper_bounds, generic_tree):
        with pytest.raises(ValueError, match='D must be symmetric'): f(np.triu(star))
    with pytest.raises(ValueError, match='u must'): generic_tree(star, -1.)
    with pytest.raises(ValueError, match='3 columns'): exact_sup(np.zeros((3, 5)))


def test_pruning_is_forced_and_limits_hold():
    for N in (50, 500, 3000):                                         # N points at one distance: the root has N - 1 children
        t = generic_tree(1. - np.eye(N), .5)
        assert t.pruned and (t.sizes <= np.exp(2.**np.minimum(np.arange(t.depth + 1), 9))).all()
        assert sorted(x for p in t.pruned for x in p.children if x >= 0) == sorted(np.flatnonzero(t.level > 1))
        for p in t.pruned: assert len(p.children) <= np.exp(2.**(p.depth + 1) - 2.**p.depth)
        a = anticoncentration(1., 1., N - 1, .5 + np.log(np.pi**2/6))
        np.testing.assert_allclose(t.value[t.born[0][0]], max(a, 0), atol=1e-12)
    assert t.value[t.born[0][0]] > 0


def test_balancing_keeps_edges_and_descendants():
    X = np.random.default_rng(0).normal(size=(400, 6)); D = cdist(X, X)
    a, b = chaining_tree(D), generic_tree(D)
    assert b.pruned and (a.parent == b.parent).all() and (a.edge == b.edge).all() and (b.level >= a.level).all() and (b.level > a.level).any()
    assert (b.level[b.parent] < b.level)[b.level > 0].all()


def test_profile_and_e_max():
    assert profile(0.) == profile(1.) == 0 and abs(profile(.5) - 1/np.sqrt(2*np.pi)) < 1e-12
    m = np.random.default_rng(0).normal(size=(200_000, 7)).max(1)
    assert abs(m.mean() - e_max(7)) < 5*m.std()/200_000**.5
    assert abs(e_max(1)) < 1e-12 and e_max(np.ones((2, 3))).shape == (2, 3)
