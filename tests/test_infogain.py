"Facts about information gain that any kernel, domain and sequence must keep."
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mtbo_nb.core.domains import Box, Finite
from mtbo_nb.core.infogain import gain_gap, gamma_bracket, gamma_exact, gamma_icm_bound, gamma_se_bound, greedy_gain, info_gain
from mtbo_nb.core.kernels import SE, Linear, Matern
from mtbo_nb.multitask.mtkernels import ICM, Diagonal, SumSeparable, TaskSimilarity

B = np.array([[2., 1, 0], [1, 1, .5], [0, .5, 1]])
kernel = st.sampled_from([SE(.3), Matern(.5, .2), Linear(.7), SE(.2)*2. + 1., ICM(SE(.3), B), TaskSimilarity(Matern(1.5, .3), .3, 2), Diagonal([SE(.1), 3.*Linear()]),
                          SumSeparable([(SE(.1), np.ones((2, 2))), (SE(.5), np.diag([1., 0.]))])])
eta = st.sampled_from([.01, .1, 1., 10.])
def domain(N): return st.integers(0, 10**6).map(lambda s: np.random.default_rng(s).random((N, 2)))


@given(kernel, domain(7), eta)
def test_gain_is_a_log_determinant(k, X, eta):
    K = k(X)
    n = len(K)//7
    np.testing.assert_allclose(info_gain(k, X, eta), [np.linalg.slogdet(np.eye(n*t) + K[:n*t, :n*t]/eta)[1] for t in range(1, 8)], rtol=1e-8)


@given(kernel, domain(8), eta)
def test_submodular_and_monotone(k, X, eta):
    gain = lambda S, x: info_gain(k, X[[*S, x]], eta)[-1] - (info_gain(k, X[S], eta)[-1] if S else 0)
    gains = [gain(list(range(m)), 7) for m in range(8)]
    assert gains[-1] >= 0 and (np.diff(gains) <= 1e-9*gains[0]).all()


@given(kernel, domain(9), eta, st.integers(1, 60), st.integers(1, 9))
@settings(deadline=None)
def test_greedy_by_any_blocks_is_greedy(k, P, eta, T, block):
    "The gains are those of the sequence, and no arm would have been better at any step; T far above N included."
    g = greedy_gain(k, P, T, eta, block)
    np.testing.assert_allclose(g.gains, info_gain(k, P[g.picks], eta), rtol=1e-8)
    for t in {0, T//2, T - 1}:
        best = max(info_gain(k, P[[*g.picks[:t], j]], eta)[-1] for j in range(9))
        np.testing.assert_allclose(g.gains[t], best, rtol=1e-8)


@given(kernel, domain(4), eta, st.integers(1, 7), st.integers(0, 10**6))
@settings(deadline=None)
def test_brackets_hold_the_exact_maximum(k, P, eta, T, seed):
    exact, picks = gamma_exact(k, P, T, eta)
    slack = 1 + 1e-9
    np.testing.assert_allclose(info_gain(k, P[picks], eta)[-1], exact, rtol=1e-9)
    (low, high), (low2, sharp) = gamma_bracket(k, P, T, eta), gamma_bracket(k, P, T, eta, sharp=True)
    assert low == low2 <= exact*slack and exact <= sharp*slack and sharp <= high*slack
    np.testing.assert_allclose(high, low/(1 - np.exp(-1)))
    X = P[np.random.default_rng(seed).integers(4, size=T)]
    assert exact <= (info_gain(k, X, eta)[-1] + gain_gap(k, P, X, eta))*slack
    assert (greedy_gain(k, P, T, eta).upper[-1] + 1e-9) >= exact


def test_gap_closes_where_whole_counts_allow():
    "On two symmetric arms the even design is optimal among all fractions, so its gap is exactly 0; uneven ones have one."
    P = np.array([[0.], [1.]])
    for k in (SE(.7), ICM(SE(.7), B)):
        assert abs(gain_gap(k, P, P.repeat(5, 0), .1)) < 1e-10
        assert gain_gap(k, P, P.repeat([7, 3], 0), .1) > .1


@pytest.mark.parametrize('xi', [[.3, 0.], [2., .5, .5], [4.]])
def test_lemma_1(xi):
    k, P, e, T = SE(.3), np.random.default_rng(1).random((4, 2)), .2, 6
    exact = gamma_exact(ICM(k, np.diag(xi)), P, T, e)[0]
    lemma = sum(gamma_exact(k, P, T, e/x)[0] for x in xi if x)
    assert .9*lemma < exact <= lemma*(1 + 1e-9) <= gamma_icm_bound(k, xi, P, T, e)*(1 + 2e-9)
    np.testing.assert_allclose(gamma_icm_bound(k, xi, P, T, e, sharp=False), sum(gamma_bracket(k, P, T, e/x)[1] for x in xi if x))


@pytest.mark.parametrize('e', [1e-8, 1e3])
def test_far_off_regularisers_and_long_runs(e):
    "Rows are rebuilt many times over; smooth kernel, singular Gram matrix."
    D, k = Finite.grid(15), SE(.5)
    g = greedy_gain(k, D, 3000, e, 4)
    counts = np.bincount(g.picks, minlength=15)
    C = np.sqrt(counts)
    np.testing.assert_allclose(g.gains[-1], np.linalg.slogdet(np.eye(15) + C[:, None]*k(D.points)*C/e)[1], rtol=1e-6)
    assert (np.diff(g.gains) >= 0).all() and (g.gains <= g.upper).all()


def test_scikit_learn_kernels():
    sk = pytest.importorskip('sklearn.gaussian_process.kernels')
    np.testing.assert_allclose(greedy_gain(sk.RBF(.3), Finite.grid(30), 20, .1).gains, greedy_gain(SE(.3), Finite.grid(30), 20, .1).gains)


@given(domain(6), st.sampled_from([.05, .5, 3.]), eta, st.integers(1, 40))
@settings(deadline=None)
def test_explicit_bound_of_the_squared_exponential(P, ls, eta, T):
    bound = gamma_se_bound(SE(ls), P, T, eta)
    assert greedy_gain(SE(ls), P, T, eta).gains[-1] <= bound*(1 + 1e-12) <= gamma_se_bound(SE(ls), Box.unit(2), T, eta)*(1 + 2e-12)


def test_explicit_bound_by_hand():
    "Two terms of (D) are all there is for a long lengthscale: the constant and the d linear functions."
    r2, T, e = 2*.5**2/1e3**2, 100, .1
    np.testing.assert_allclose(gamma_se_bound(SE(1e3), Box.unit(2), T, e), np.log1p(T/e) + 2*np.log1p(T*r2/(2*e)), rtol=1e-5)
    assert gamma_se_bound(SE(1e3), [[3., 7.]], T, e) == pytest.approx(np.log1p(T/e))
