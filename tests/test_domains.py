"Domains and maximisers at their edges: one arm, copies, signed zeros, budgets of one, functions that fail."
import pickle
import warnings

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays

from mtbo_nb.core import domains
from mtbo_nb.core.domains import LBFGSB, Argmax, Box, Direct, Finite, Maximum, default_maximiser

coarse = st.integers(-3, 3).map(lambda i: i/2)                   # few values, so rows repeat
tables = st.tuples(st.integers(1, 12), st.integers(1, 3)).flatmap(lambda s: arrays(float, s, elements=coarse))
bowl = lambda X: -((X - .3)**2).sum(1)


class Counted:
    def __init__(self, f): self.f, self.values, self.shapes = f, [], []
    def __call__(self, X):
        v = self.f(X)
        self.values.extend(v)
        self.shapes.append(X.shape)
        return v


@given(tables, tables)
def test_index_is_the_first_equal_row(P, X):
    D = Finite(P)
    if X.shape[1] != D.d:
        with pytest.raises(ValueError, match='X must have'): D.index(X)
        return
    want = [next((i for i, p in enumerate(P) if (p == x).all()), -1) for x in X]
    np.testing.assert_array_equal(D.index(X), want)
    np.testing.assert_array_equal(D.contains(X), np.array(want) >= 0)
    np.testing.assert_array_equal(D.index(np.where(X == 0, -0., X)), want)
    np.testing.assert_array_equal(Finite(np.where(P == 0, -0., P)).index(X), want)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(D)).index(X), want)


def test_finite_keeps_its_own_read_only_points():
    P = np.array([[0., 1.], [2., 3.]])
    D = Finite(P)
    P[0] = 9
    np.testing.assert_array_equal(D.points, [[0, 1], [2, 3]])
    with pytest.raises(ValueError): D.points[0] = 5
    assert len(D) == D.N == 2 and D.d == 2 and Finite(D.points).index([[2., 3.]])[0] == 1


@pytest.mark.parametrize('make, says', [
    (lambda: Finite(np.empty((0, 3))), 'points must hold at least one arm'),
    (lambda: Finite(np.empty((3, 0))), 'points must hold at least one arm'),
    (lambda: Finite([1., 2.]), 'points must have shape'),
    (lambda: Finite([[0.], [np.nan]]), 'points must be finite'),
    (lambda: Finite.grid(0), 'm must be an integer >= 1'),
    (lambda: Finite.grid(3, 0), 'd must be an integer >= 1'),
    (lambda: Box([0, 0], [1]), 'lo and hi must have the same length'),
    (lambda: Box([], []), 'at least one coordinate'),
    (lambda: Box([0, 2], [1, 2]), r'hi\[1\]=2'),
    (lambda: Box([0], [np.inf]), 'hi must be finite'),
    (lambda: Box([np.nan], [1]), 'lo must be finite'),
    (lambda: Box([[0]], [[1]]), r'lo must have shape \(d,\)'),
    (lambda: Box.unit(0), 'd must be an integer'),
    (lambda: Box.unit(2).sobol(0), 'n must be an integer >= 1'),
    (lambda: Box.unit(2).contains([[0., 0., 0.]]), 'X must have 2 columns'),
    (lambda: Box.unit(2).unscale([[np.nan, 0.]]), 'U must be finite'),
    (lambda: Box.unit(1).sample(3, 'seed'), 'rng must be'),
    (lambda: Direct(0), 'budget must be'), (lambda: Direct(2.5), 'budget must be'), (lambda: Direct(5, local=3), 'local must be one of'),
    (lambda: LBFGSB(starts=0), 'starts must be'), (lambda: LBFGSB(starts=6, raw=5), 'starts must be at most raw=5'), (lambda: LBFGSB(maxiter=0), 'maxiter must be'),
    (lambda: Argmax()(bowl, Box.unit(1)), 'domain must be a Finite for Argmax'),
    (lambda: Direct(5)(bowl, Finite.grid(3)), 'domain must be a Box for Direct'),
    (lambda: LBFGSB()(bowl, Finite.grid(3)), 'domain must be a Box for LBFGSB'),
    (lambda: default_maximiser('box'), 'domain must be a Finite or a Box'),
])
def test_bad_input_is_named(make, says):
    with pytest.raises(ValueError, match=says): make()


searches = [(Argmax(), Finite.grid(7, 2)), (Direct(30), Box([-1, 0], [1, 5])), (LBFGSB(starts=2, raw=16), Box([-1, 0], [1, 5]))]


@pytest.mark.parametrize('m, D', searches, ids=repr)
@pytest.mark.parametrize('f, says', [
    (lambda X: np.full(len(X), np.nan), 'f must be finite, got NaN at x ='),
    (lambda X: np.full(len(X), np.inf), 'f must be finite, got inf at x ='),
    (lambda X: np.zeros((len(X), 1)), 'f must map'),
    (lambda X: 0., 'f must map'),
])
def test_a_bad_function_is_named_and_the_search_works_again(m, D, f, says):
    with pytest.raises(ValueError, match=says): m(f, D, 0)
    assert D.contains(m(bowl, D, 0).x[None])[0]


@pytest.mark.parametrize('m, D', searches, ids=repr)
def test_errors_of_the_function_reach_the_caller(m, D):
    def f(X): raise KeyError('no model yet')
    with pytest.raises(KeyError, match='no model yet'): m(f, D, 0)


@pytest.mark.parametrize('m, D', searches, ids=repr)
def test_the_answer_is_the_best_point_met(m, D):
    g = Counted(lambda X: np.sin(7*X[:, 0]) + np.cos(3*X[:, -1]))
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        best = m(g, D, 0)
    assert isinstance(best, Maximum) and best.x.shape == (2,) and isinstance(best.value, float)
    assert best.calls == len(g.values) and best.value == max(g.values) == g.f(best.x[None])[0]
    again = m(g.f, D, 0)
    np.testing.assert_array_equal(again.x, best.x)


@pytest.mark.parametrize('m, D, first', [(Argmax(), Finite.grid(7, 2), [0., 0.]), (Direct(30), Box([-1, 0], [1, 5]), [0., 2.5])], ids=['Argmax', 'Direct'])
def test_of_equals_the_first(m, D, first): np.testing.assert_array_equal(m(lambda X: np.zeros(len(X)), D).x, first)


@given(tables, st.integers(0, 2**32))
def test_argmax_is_exact(P, seed):
    v = np.random.default_rng(seed).integers(0, 3, len(P)).astype(float)
    best = Argmax()(lambda X: v, Finite(P))
    np.testing.assert_array_equal(best.x, P[v.argmax()] + 0.)
    assert best.value == v.max() and best.calls == len(P)


@settings(deadline=None)
@given(st.integers(1, 6), st.integers(1, 60), st.booleans())
def test_direct_never_exceeds_its_budget(d, budget, local):
    g = Counted(bowl)
    best = Direct(budget, local)(g, Box.unit(d))
    assert best.calls == len(g.values) <= budget and best.value == max(g.values)


def test_direct_uses_its_budget_in_many_dimensions():
    "SciPy's default tolerance on volumes would stop it after a few hundred."
    for d in (34, 40): assert Direct(3000)(bowl, Box.unit(d)).calls == 3000


def test_minus_infinity_excludes_an_arm_and_only_an_arm():
    f = lambda X: np.where(X[:, 0] > .5, -np.inf, X[:, 0])
    assert Argmax()(f, Finite.grid(5)).x.tolist() == [.5]
    for m in (Direct(20), LBFGSB(starts=1, raw=8)):
        with pytest.raises(ValueError, match='f must be finite, got -inf'): m(f, Box.unit(1), 0)


def test_lbfgsb_stopped_on_a_slope_answers_with_the_best_point_it_met():
    g = Counted(lambda X: -((X - .3)**4).sum(1))
    best = LBFGSB(starts=1, raw=1, maxiter=1)(g, Box.unit(2), 0)
    assert best.value == max(g.values) == g.f(best.x[None])[0]


def test_lbfgsb_screens_in_one_call_and_differences_in_one_call():
    g = Counted(bowl)
    LBFGSB(starts=1, raw=16)(g, Box.unit(3), 0)
    assert g.shapes[0] == (16, 3) and set(g.shapes[1:]) == {(7, 3)}
    h = Counted(bowl)
    LBFGSB(starts=1, raw=16)(h, Box.unit(3), 0, lambda X: -2*(X - .3))
    assert set(h.shapes[1:]) == {(1, 3)}


@pytest.mark.parametrize('grad', [None, lambda X: -2*(X - [5., 2e-5, -3e4])/np.array([1., 1e-10, 1e10])])
def test_lbfgsb_in_a_box_of_unlike_sides(grad):
    target, size = np.array([5., 2e-5, -3e4]), np.array([1., 1e-5, 1e5])
    f = lambda X: -(((X - target)/size)**2).sum(1)
    best = LBFGSB(starts=2, raw=32)(f, Box(target - size*[3, 1, 2], target + size*[1, 4, 2]), 1, grad)
    np.testing.assert_allclose((best.x - target)/size, 0, atol=1e-5)


@pytest.mark.parametrize('u', [[0., 1.], [.3, 0.], [1., .5]])
def test_differences_are_the_gradient_on_the_faces_too(u, monkeypatch):
    got = []
    monkeypatch.setattr(domains, 'minimize', lambda cost, start, **kw: got.append(cost(np.array(u))))
    LBFGSB(starts=1, raw=1)(lambda X: np.sin(X[:, 0]) + X[:, 0]*X[:, 1], Box([0, 0], [2, 10]), 0)
    x, y = 2*u[0], 10*u[1]
    np.testing.assert_allclose(got[0][0], -(np.sin(x) + x*y))
    np.testing.assert_allclose(got[0][1], [-2*(np.cos(x) + y), -10*x], atol=1e-4)


def test_lbfgsb_reaches_corners_and_stays_inside():
    D = Box([-.1, .2], [.3, 1/3])
    for sign in (1, -1): np.testing.assert_array_equal(LBFGSB(starts=1, raw=4)(lambda X: sign*X.sum(1), D, 0).x, D.hi if sign > 0 else D.lo)


def test_designs():
    D = Box([-5, 0], [10, 15])
    for n in (1, 2, 7, 64): assert D.sobol(n, 0).shape == D.sample(n, 0).shape == (n, 2)
    np.testing.assert_array_equal(D.sobol(7, 0), D.sobol(8, 0)[:7])
    assert (D.sobol(7, 0) != D.sobol(7, 1)).any()
    cells = np.floor(Box.unit(1).sobol(32, 5)[:, 0]*32)          # one point in each 32nd
    np.testing.assert_array_equal(np.sort(cells), np.arange(32))
    assert D.sample(0, 0).shape == (0, 2) and Finite.grid(3).sample(0, 0).shape == (0, 1)
    np.testing.assert_array_equal(Finite.grid(1, 2).points, [[.5, .5]])
