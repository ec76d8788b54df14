"Nets and trees at their edges: one point, copies, zero diameter, bad matrices, many scales; and what they cost."
import time

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial.distance import cdist

from mtbo_nb.chaining.increments import ell_gauss, ell_subgamma
from mtbo_nb.chaining.trees import as_metric, chaining_tree, dudley, greedy_net, level_u, metric_matrix, omega, point_tree
from mtbo_nb.core.kernels import SE, Linear, Matern

coarse = st.integers(-3, 3).map(lambda i: i/2)                   # few values, so points coincide
clouds = st.tuples(st.integers(1, 25), st.integers(1, 3)).flatmap(lambda s: arrays(float, s, elements=coarse))


def check(t, D, slack=0.):
    "Root, nets, packings, nearest parents, edges, chains and cell radii."
    N, H = len(D), len(t.eps)
    assert t.N == N and (t.level == 0).sum() == 1 and t.sizes[-1] == N and t.depth in (H - 1, H)
    np.testing.assert_allclose(t.edge, D[np.arange(N), t.parent], atol=slack)
    for h in range(t.depth + 1):
        T, e = t.nodes(h), t.eps[h] if h < H else 0.
        assert (D[T].min(0) <= e + slack).all(), 'net'
        if h < H:
            S = D[np.ix_(T, T)][~np.eye(len(T), dtype=bool)]
            assert (S > e - slack).all(), 'packing'
        if h:
            b, A = t.born[h], t.nodes(h - 1)
            assert np.isin(t.parent[b], A).all() and (t.edge[b] <= D[b][:, A].min(1, initial=np.inf) + slack).all()
        p = t.chain[h]
        assert (t.level[p] <= h).all() and (p[t.level <= h] == np.flatnonzero(t.level <= h)).all()
        np.testing.assert_allclose(t.radius(h), [D[p == p[x], p[x]].max() for x in range(N)], atol=slack)


@settings(deadline=None, max_examples=60)
@given(clouds, st.sampled_from([None, 1, 2, 5]))
def test_trees_of_coarse_clouds(X, levels):
    D = cdist(X, X)
    check(chaining_tree(D, levels), D)
    check(point_tree(X, levels=levels), D, 1e-12)


@settings(deadline=None, max_examples=60)
@given(clouds, st.floats(0, 3), st.booleans())
def test_nets_cover_and_pack(X, eps, packing):
    D = cdist(X, X)
    T = greedy_net(D, eps, packing)
    assert (D[T].min(0) <= eps).all() and len(set(T.tolist())) == len(T)
    if packing: assert (D[np.ix_(T, T)][~np.eye(len(T), dtype=bool)] > eps).all()


@pytest.mark.parametrize('D, sizes', [
    (np.zeros((1, 1)), [1]), (np.zeros((4, 4)), [1, 4]), (np.array([[0., 3.], [3., 0.]]), [1, 2]), (2.*(1 - np.eye(6)), [1, 6]),
    (cdist(*[np.array([[0.], [0.], [1.], [1.]])]*2), [1, 2, 4])])
def test_odd_sizes(D, sizes):
    t = chaining_tree(D)
    check(t, D)
    assert t.sizes.tolist() == sizes
    w = omega(t, 1.)
    assert w.shape == (t.depth + 1,) and w[-1] == 0 and (np.diff(w) <= 1e-12).all() and np.isfinite(dudley(t))
    assert D.any() or (w == 0).all() and dudley(t) == 0
    assert omega(t, 1., each=True).shape == (t.depth + 1, len(D))


def test_tiny_and_huge_units_give_the_same_tree():
    X = np.random.default_rng(0).random((80, 2))
    a = chaining_tree(cdist(X, X))
    for c in (2.**-300, 2.**300):
        b = chaining_tree(c*cdist(X, X))
        np.testing.assert_array_equal(a.level, b.level)
        np.testing.assert_array_equal(a.parent, b.parent)
    X = 10.**-np.arange(150.)[:, None]                             # more scales than levels
    check(chaining_tree(cdist(X, X)), cdist(X, X))
    check(chaining_tree(cdist(X, X), 300), cdist(X, X))
    assert len(chaining_tree(cdist(X, X), 300).eps) <= 250


def broken(i):
    D = cdist(*[np.random.default_rng(1).random((60, 2))]*2)
    if i == 'asymmetric': D[3, 5] += 1e-3
    if i == 'diagonal': D[7, 7] = .01
    if i == 'negative': D[1, 2] = D[2, 1] = -.2
    if i == 'NaN': D[0, 1] = D[1, 0] = np.nan
    if i == 'inf': D[0, 1] = D[1, 0] = np.inf
    if i == 'triangle': D[0] *= 20; D[:, 0] = D[0]
    if i == 'triangle, all pairs': D = D**3
    if i == 'not square': D = D[:10]
    if i == 'empty': D = np.zeros((0, 0))
    if i == 'points': D = np.arange(6.)
    if i == 'words': D = [['a', 'b'], ['c', 'd']]
    return D


@pytest.mark.parametrize('kind, says', [('asymmetric', 'symmetric'), ('diagonal', 'diagonal'), ('negative', '>= 0'), ('NaN', 'NaN'), ('inf', 'inf'), ('triangle, all pairs', 'triangle'),
                                        ('not square', r'square.*\(10, 60\)'), ('empty', 'square'), ('points', 'square'), ('words', 'numbers')])
@pytest.mark.parametrize('f', [as_metric, chaining_tree, lambda D: greedy_net(D, .1)])
def test_bad_matrices(f, kind, says):
    with pytest.raises(ValueError, match=f'D must.*{says}'): f(broken(kind))


def test_triangle_check_says_it_is_a_sample():
    with pytest.raises(ValueError, match='20,000 triples tried'): as_metric(broken('triangle, all pairs'))
    with pytest.raises(ValueError, match=r'triangle inequality, but D\[0, 2\]'): as_metric(np.array([[0, 1, 5.], [1, 0, 1], [5, 1, 0]]))


def test_rounding_is_forgiven():
    D = cdist(*[np.random.default_rng(1).random((60, 2))]*2)
    E = D.copy(); E[3, 5] += 1e-12; E[4, 4] = 1e-12
    M = as_metric(E)
    assert (M == M.T).all() and (M.diagonal() == 0).all() and E[4, 4] == 1e-12          # a copy was repaired
    assert as_metric(D) is D
    X = 1 + 1e-9*np.random.default_rng(0).random((40, 2))          # a kernel metric that is mostly rounding
    for k in (SE(.1), Matern(.5, 1.), Linear(1.)): chaining_tree(metric_matrix(X, k))


@pytest.mark.parametrize('call, says', [
    (lambda t: omega(t, -1.), 'u must'), (lambda t: omega(t, 1., a=1.), 'a must'), (lambda t: omega(t, 1., n='other'), 'n must'), (lambda t: omega(t, 1., n=np.ones(99)), 'n must'),
    (lambda t: chaining_tree(np.zeros((2, 2)), 0), 'levels'), (lambda t: greedy_net(np.zeros((2, 2)), -1.), 'eps'), (lambda t: point_tree(np.zeros((0, 2))), 'X must'),
    (lambda t: point_tree(np.random.rand(9, 2), 'euclid'), 'metric must'), (lambda t: point_tree(np.random.rand(9, 2), Linear(1.)), 'Euclidean'), (lambda t: metric_matrix(np.eye(2), 3), 'metric must'),
    (lambda t: metric_matrix(np.eye(2), 'nonsense'), 'metric must'), (lambda t: point_tree(np.array([[np.nan]])), 'X must')])
def test_bad_arguments(call, says):
    with pytest.raises(ValueError, match=says): call(chaining_tree(cdist(np.eye(3), np.eye(3))))


def test_omega_by_hand():
    D = cdist(*[np.array([[0.], [4.], [5.], [-4.]])]*2)            # ε = 9, 4.5, 2.25, 1.1, 0.6: 5 is born at depth 1, then -4 and, under 5, the point 4
    t = chaining_tree(D)
    assert t.level.tolist() == [0, 4, 1, 2] and t.parent.tolist() == [0, 2, 0, 0] and t.edge.tolist() == [0, 1, 5, 4]
    u = [1 + np.log(i**2*np.pi**2/6) for i in (1, 2, 3, 4)]        # one birth a level
    for ell in (ell_gauss, lambda u, d: ell_subgamma(u, d, 2., .5)):
        a, b, c = ell(u[0], 5.), ell(u[1], 4.), ell(u[3], 1.)
        np.testing.assert_allclose(omega(t, 1., ell), [max(a + c, b), max(b, c), c, c, 0])
    np.testing.assert_allclose(level_u(t, 1., n='net') - level_u(t, 0., n='net'), 1.)
    np.testing.assert_allclose(level_u(t, 1., n='generic')[0], 1 + 2 + np.log(np.pi**2/6))


def timed(f, n=7):
    out = []
    for _ in range(n):
        t0 = time.process_time(); f(); out.append(time.process_time() - t0)
    return min(out)


@pytest.mark.parametrize('d', [2, 3, 10])
def test_a_tree_costs_at_most_five_distance_matrices(d):
    X = np.random.default_rng(0).random((2000, d))
    D = cdist(X, X)
    assert timed(lambda: chaining_tree(D, 7)) <= 5*timed(lambda: cdist(X, X))


def test_growth_with_the_number_of_points():
    cost = []
    for N in (1000, 4000):
        X = np.random.default_rng(0).random((N, 3)); D = cdist(X, X)
        cost.append(timed(lambda: chaining_tree(D, 7)))
    assert cost[1] <= 20*cost[0]


def test_fifty_thousand_points_and_five_thousand_with_a_matrix():
    X = np.random.default_rng(0).random((50_000, 3))
    t = point_tree(X, Matern(1.5, .4))
    assert t.sizes[-1] == 50_000 and (np.diff(omega(t, 1.)) <= 1e-12).all()
    b = t.born[2]
    assert (t.edge[b] <= t.eps[1] + 1e-9).all() and (t.edge[b] > t.eps[2] - 1e-9).all()
    D = cdist(X[:5000], X[:5000])
    t = chaining_tree(D)
    for h in (1, 2, 3):
        T = t.nodes(h)
        assert (D[T].min(0) <= t.eps[h]).all() and (D[np.ix_(T, T)] + 9*np.eye(len(T)) > t.eps[h]).all()
