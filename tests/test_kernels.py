"Facts every kernel expression must keep, whatever it is made of."
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mtbo_nb.core.kernels import RQ, SE, Constant, Kernel, Linear, Matern, Periodic, White, as_kernel

d = 3
size = st.sampled_from([.25, .5, 1., 1.5])                       # exact in binary and in print
ls = st.one_of(size, st.lists(size, min_size=d, max_size=d))
leaf = st.one_of(st.builds(SE, ls), st.builds(Matern, st.sampled_from([.3, .5, 1., 1.5, 2.2, 2.5, 3.5, np.inf]), ls), st.builds(RQ, ls, size), st.builds(Periodic, ls, ls),
                 st.builds(Linear, ls), st.builds(Constant, size), st.builds(White, size), st.builds(lambda v, j: SE(v).on(j), size, st.sampled_from([[0], [2, 1]])))
kernels = st.recursive(leaf, lambda k: st.one_of(st.builds(lambda a, b: a + b, k, k), st.builds(lambda a, b: a*b, k, k), st.builds(lambda c, a: c*a, size, k), st.builds(lambda a: a.on([2, 0, 1]), k)), max_leaves=4)
point = st.tuples(*[st.integers(-8, 8)]*d)                       # eighths: differences and shifts by 1 are exact
points = st.lists(point, min_size=1, max_size=6).map(lambda p: np.array(p, float)/8)


@given(kernels, points)
def test_symmetric_and_positive(k, X):
    K = k(X)
    np.testing.assert_allclose(K, K.T, rtol=1e-13, atol=1e-15)
    w = np.linalg.eigvalsh(K)
    assert w[0] >= -1e-13*max(w[-1], 1)


@given(kernels, points, points)
def test_a_function_of_two_points(k, X, Z):
    "Neither the other rows nor the form of the call matters: k(X) = k(X, X), rows one by one, diagonal by itself."
    np.testing.assert_array_equal(k(X), k(X, X.copy()))
    K, near = k(X, Z), dict(rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(K, np.vstack([k(x[None], Z) for x in X]), **near)
    np.testing.assert_allclose(K, k(Z, X).T, **near)
    np.testing.assert_allclose(k.diag(X), np.diag(k(X)), rtol=1e-13)
    if k.stationary: np.testing.assert_array_equal(k.diag(X), np.diag(k(X)))
    both = k(np.vstack([X, X]))                                  # the same points again are the same rows again
    np.testing.assert_allclose(both[:len(X)], both[len(X):], **near)


@given(kernels, points, points)
def test_stationary_means_shift_invariant(k, X, Z):
    if k.stationary: np.testing.assert_allclose(k(X + 1, Z + 1), k(X, Z), rtol=1e-11, atol=1e-13)
    elif not np.array_equal(X, X*0): assert not np.allclose(k.diag(X), k.diag(X + 64), rtol=1e-3)


@given(kernels, points, points)
@settings(deadline=None)
def test_gradients_are_derivatives(k, X, Z):
    Z = Z + 1/16                                                 # off the kinks of the rough kernels
    for exact, by_differences in ((k.grad_theta(X, Z), Kernel._grad_theta(k, X, Z)), (k.grad_x(X, Z), Kernel._grad_x(k, X, Z))):
        np.testing.assert_allclose(exact, by_differences, rtol=1e-5, atol=1e-5*max(1, np.abs(by_differences).max()))


@given(kernels, points)
def test_value_objects(k, X):
    twin = eval(repr(k), dict(globals(), inf=np.inf))
    assert twin == k and hash(twin) == hash(k) and twin is not k
    np.testing.assert_array_equal(twin(X), k(X))
    again = k.with_theta(k.theta)
    np.testing.assert_allclose(again(X), k(X), rtol=1e-12, atol=1e-15)
    other = k.with_theta(k.theta + .5)
    assert other != k and k.with_theta(k.theta).theta.shape == k.theta.shape
    np.testing.assert_allclose(other.theta, k.theta + .5, rtol=1e-12, atol=1e-12)


def test_immutable():
    k = SE([.1, .2])
    with pytest.raises(ValueError): k.ls[0] = 1


@pytest.mark.parametrize('n', [1, 2, 50])
def test_sklearn_kernels_are_kernels(n):
    sk = pytest.importorskip('sklearn.gaussian_process.kernels')
    X, Z = np.random.default_rng(n).random((2, n, 2))
    k = as_kernel(sk.RBF([.3, .4])*sk.DotProduct(.5))
    ours = SE([.3, .4])*(Linear() + .25)
    np.testing.assert_allclose(k(X, Z), ours(X, Z), rtol=1e-12)
    np.testing.assert_allclose(k.diag(X), ours.diag(X), rtol=1e-12)
    assert not k.stationary and as_kernel(k) is k and k == as_kernel(sk.RBF([.3, .4])*sk.DotProduct(.5))
