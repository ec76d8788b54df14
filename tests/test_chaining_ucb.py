"The chaining bandits: GP-UCB as a special case, batches, runs on disk, odd sizes, refusals, and what a step costs."
import time

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.stats import ncx2, norm

from mtbo_nb.chaining.trees import chaining_tree, metric_matrix, point_tree
from mtbo_nb.chaining.ucb import ChainingUCB, MatrixKernel, SquaresUCB, TreeUCB, graph_kernel, squares_quantiles
from mtbo_nb.core.domains import Finite
from mtbo_nb.core.kernels import SE, Linear, Matern

rng = np.random.default_rng(0)
P, k = rng.random((120, 2)), Matern(1.5, .3)
path = np.diag(np.ones(29), 1) + np.diag(np.ones(29), -1)
makers = {'tree': lambda **kw: TreeUCB(k, P, **kw), 'all': lambda **kw: TreeUCB(k, P, rule='all', **kw), 'squares': lambda **kw: SquaresUCB(k, P, 2, **kw), 'chaining': lambda **kw: ChainingUCB(k, P, **kw),
          'first': lambda **kw: ChainingUCB(k, P, rule='first', **kw), 'every round': lambda **kw: ChainingUCB(k, P, rebuild=1., **kw), 'kept': lambda **kw: ChainingUCB(k, P, tree=point_tree(P, k), **kw),
          'graph': lambda **kw: ChainingUCB(graph_kernel(path, 5.), np.arange(30.)[:, None], **kw), 'graph, first': lambda **kw: TreeUCB(graph_kernel(path, 5.), np.arange(30.)[:, None], **kw)}
see = lambda a: lambda x, r: np.sin(5*x.sum()) + .1*r.normal(size=a._tasks)


def test_rule_all_is_gp_ucb():
    a, X, y = TreeUCB(k, P, eta=.02, u=1.5, rule='all', rng=0), [], []
    for i in range(1, 16):
        u = 1.5 + np.log(120) + np.log(i**2*np.pi**2/6)
        z = norm.isf(np.exp(-u)/2)
        if X:
            C = k(P, np.array(X)); G = np.linalg.inv(k(np.array(X)) + .02*np.eye(len(X)))
            m, s = C@G@y, np.sqrt(1 - np.einsum('ij,jk,ik->i', C, G, C))
        else: m, s = np.zeros(120), np.ones(120)
        x = a.ask()
        np.testing.assert_array_equal(x, P[np.argmax(np.round(m + z*s, 9))])
        X.append(x); y.append(np.sin(7*x[0]) - x[1]); a.tell(x, y[-1])
        np.testing.assert_allclose(a.history.bounds[-1], 2*z*s[np.argmax((P == x).all(1))], rtol=1e-6)


@pytest.mark.parametrize('name', makers)
def test_runs_go_on_after_saving(name, tmp_path):
    a = makers[name](rng=5)
    a.tell(a.points[[3, 3, 8]], np.ones((3, a._tasks))).run(see(a), 12)
    a.ask(); a.save(tmp_path/'run.npz')
    b = type(a).load(tmp_path/'run.npz') if name != 'kept' else ChainingUCB.load(tmp_path/'run.npz', tree=a.tree)
    for c in (a, b): c.run(see(c), 30)
    for col in ('X', 'Y', 'bounds', 'levels', 'radii', 'confidence'): np.testing.assert_array_equal(getattr(a.history, col), getattr(b.history, col))
    assert np.isnan(a.history.bounds[:3]).all() and (a.history.bounds[3:] > 0).all()
    c = makers[name](rng=5)
    c.tell(c.points[[3, 3, 8]], np.ones((3, c._tasks))).run(see(c), 30)
    np.testing.assert_array_equal(a.history.X, c.history.X)


def test_a_kept_tree_must_be_passed_again(tmp_path):
    makers['kept']().save(tmp_path/'run.npz')
    with pytest.raises(ValueError, match='tree could not be written'): ChainingUCB.load(tmp_path/'run.npz')


@pytest.mark.parametrize('points', [np.zeros((1, 1)), np.ones((5, 2)), np.array([[0.], [0.], [1.]]), np.linspace(0, 1, 3)[:, None]])
@pytest.mark.parametrize('k', [SE(.3), Matern(.5, 10.)])
def test_odd_sizes(points, k):
    for a in (TreeUCB(k, points), TreeUCB(k, points, rule='all'), SquaresUCB(k, points, 3), ChainingUCB(k, points), ChainingUCB(k, points, rule='first', rebuild=1.), ChainingUCB(k, points, levels=1),
              ChainingUCB(k, Finite(points), tree=point_tree(points, k))):
        a.run(lambda x: np.full(a._tasks, 2.), 9)
        assert a.t == 9 and np.isfinite(a.history.bounds).all() and a.domain.contains(a.history.X).all()


def test_noise_free_and_long_runs_stay_finite():
    a = ChainingUCB(SE(.5), np.linspace(0, 1, 40)[:, None], eta=1e-10).run(lambda x: np.sin(6*x[0]), 150)
    assert np.isfinite(a.history.bounds).all() and a.history.bounds[-1] < 1e-2 and abs(a.history.X[-1, 0] - np.pi/12) < .03


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 12), st.floats(-2, 6), st.floats(.05, 30))
def test_squares_quantiles(n, decade, u):
    lam = 10**decade
    lo, hi = squares_quantiles(lam, n, u)
    blo, bhi = squares_quantiles(lam, n, u, exact=False)
    assert 0 <= blo <= lo*(1 + 1e-9) and (lo <= n + lam + 1e-9*lam or u < 1)
    assert hi <= bhi*(1 + 1e-9)
    if lam < 1e4: assert ncx2.cdf(lo, n, lam) <= np.exp(-u)*(1 + 1e-5) and ncx2.sf(hi, n, lam) <= np.exp(-u)*(1 + 1e-5)


@pytest.mark.parametrize('make, says', [
    (lambda: TreeUCB(k, P, u=-1), 'u must'), (lambda: TreeUCB(k, P, a=1), 'a must'), (lambda: TreeUCB(k, P, eta=0), 'eta'), (lambda: TreeUCB(k, P, rule='first'), 'rule'), (lambda: ChainingUCB(k, P, rule='all'), 'rule'),
    (lambda: ChainingUCB(k, P, rebuild=.9), 'rebuild'), (lambda: ChainingUCB(k, P, levels=0), 'levels'), (lambda: ChainingUCB(k, P, tree=point_tree(P[:9], k)), 'tree must'),
    (lambda: ChainingUCB(k, P, tree=chaining_tree(metric_matrix(P))), 'tree must be in the metric'), (lambda: SquaresUCB(k, P, 0), 'n must'), (lambda: SquaresUCB(Linear(), P), 'stationary'), (lambda: ChainingUCB(k, P[:0]), 'points'),
    (lambda: ChainingUCB(3, P), 'k must'), (lambda: MatrixKernel([[1., 2.], [2., 1.]]), 'K must'), (lambda: MatrixKernel(np.eye(3))([[3.]]), 'X must'), (lambda: MatrixKernel(np.eye(3))([[0., 1.]]), 'X must'),
    (lambda: graph_kernel(np.triu(np.ones((3, 3)))), 'A must'), (lambda: graph_kernel(path, 0.), 'time'), (lambda: ChainingUCB(k, P).tell([9., 9.], 1.), 'domain'), (lambda: ChainingUCB(k, P).tell(P[0], np.inf), 'finite')])
def test_bad_arguments(make, says):
    with pytest.raises(ValueError, match=says): make()


def test_a_refused_tell_changes_nothing():
    a, b = makers['chaining'](rng=1), makers['chaining'](rng=1)
    a.run(see(a), 6); b.run(see(b), 6)
    with pytest.raises(ValueError): a.tell(P[0], np.nan)
    a.run(see(a), 20); b.run(see(b), 20)
    np.testing.assert_array_equal(a.history.X, b.history.X)


def test_graph_kernel_follows_the_edges():
    two = np.kron(np.eye(2), path[:5, :5])                           # two separate paths
    K = graph_kernel(two, 3.)(np.arange(10.)[:, None])
    assert np.abs(K[:5, 5:]).max() < 1e-12 and K[0, 1] > K[0, 2] > K[0, 4] > 0 and abs(K.diagonal().max() - 1) < 1e-12
    K = graph_kernel(np.zeros((4, 4)), 1.)(np.arange(4.)[:, None])   # no edges: independent nodes
    np.testing.assert_allclose(K, np.eye(4))


def test_a_step_costs_less_than_ten_of_gp_ucb():
    X = np.random.default_rng(0).random((1000, 2)); f = np.sin(5*X.sum(1)); dom = Finite(X)
    def cost(make):
        out = []
        for r in range(3):
            a = make(); js = np.random.default_rng(r).integers(1000, size=150); a.tell(X[js], f[js])
            t0 = time.process_time()
            for _ in range(60): x = a.ask(); a.tell(x, f[dom.index(x[None])[0]])
            out.append(time.process_time() - t0)
        return min(out)
    assert cost(lambda: ChainingUCB(k, dom)) < 10*cost(lambda: TreeUCB(k, dom, rule='all'))
