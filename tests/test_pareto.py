"Fronts, scalarisations and regrets at their edges, against the definitions."
import sys

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays

from mtbo_nb.multitask.pareto import (Chebyshev, Dirac, Scalarization, WeightedSum, bayes_regret, chebyshev_weights, cumulative_regret, dominates, hypervolume,
                                      linear_weights, pareto_front, pareto_mask)

value = st.one_of(st.integers(-2, 2).map(float), st.sampled_from([-0., 1e-300, -1e300, .1, .1 + 2**-55]))
outputs = st.tuples(st.integers(1, 25), st.integers(1, 5)).flatmap(lambda s: arrays(float, s, elements=value))
moderate = outputs.map(lambda Y: np.clip(Y, -3, 3))
weight = st.one_of(st.just(0.), st.floats(1e-3, 10))


def by_definition(Y): return np.array([not any((v >= y).all() and (v > y).any() for v in Y) for y in Y])


@given(outputs)
def test_front_is_what_nothing_dominates(Y):
    mask = pareto_mask(Y)
    np.testing.assert_array_equal(mask, by_definition(Y))
    assert mask.any()
    front = pareto_front(Y)
    assert pareto_mask(front).all() and {tuple(y + 0.) for y in Y[mask]} == {tuple(y) for y in front} and len(front) == len({tuple(y) for y in front})


@pytest.mark.parametrize('n', [3, 5])
def test_fronts_larger_than_a_block(n):
    rng = np.random.default_rng(n)
    Y = rng.integers(0, 40, (1500, n)).astype(float)
    Y = np.vstack([Y, Y[:200], 80*n*rng.dirichlet(np.ones(n), 700)])   # 700 on a plane above all the others
    want = np.concatenate([~dominates(Y[None], y[:, None]).any(1) for y in np.array_split(Y, 20)])
    assert want.sum() > 256
    np.testing.assert_array_equal(pareto_mask(Y), want)


def test_ranks_beyond_16_bits():
    x = np.arange(70_000.)
    assert pareto_mask(np.c_[x, -x, np.zeros_like(x)]).all()
    np.testing.assert_array_equal(np.flatnonzero(pareto_mask(np.c_[x, x, x])), [69_999])


def test_one_task_one_arm_constants():
    np.testing.assert_array_equal(pareto_mask([[1.], [3.], [3.]]), [False, True, True])
    assert pareto_mask([[1., 2., 3.]]).tolist() == [True] and pareto_mask(np.ones((4, 6))).all() and pareto_mask(np.zeros((0, 2))).shape == (0,)
    np.testing.assert_array_equal(pareto_front(np.ones((4, 3))), np.ones((1, 3)))


@given(moderate, st.data())
def test_a_maximum_is_on_the_front(Y, data):
    "Part 2 of Theorem 2, for weights that may be zero; part 1 for positive ones."
    lam = data.draw(arrays(float, Y.shape[1], elements=weight))
    for s in (WeightedSum(), Chebyshev(Y.min(0)), Chebyshev(-7.)):
        v = s(Y, lam)
        assert v.shape == (len(Y),) and v.max() == v[pareto_mask(Y)].max()


@given(moderate, st.data())
def test_lipschitz_monotone_and_table(Y, data):
    n = Y.shape[1]
    lam = data.draw(arrays(float, n, elements=weight))
    for s in (WeightedSum(), Chebyshev(np.arange(n)/3), Chebyshev()):
        v, L = s(Y, lam), s.lipschitz(lam)
        assert (np.abs(v[:, None] - v) <= L*np.linalg.norm(Y[:, None] - Y, axis=2) + 1e-9).all()
        assert (s(Y + [.5]*n, lam) >= v).all()
        np.testing.assert_allclose(s.table(Y, lam[None]), v[None], atol=1e-12)
        np.testing.assert_allclose(s(Y, np.tile(lam, (len(Y), 1))), v, atol=1e-12)
        np.testing.assert_allclose([s(y, lam) for y in Y], v, atol=1e-12)
        np.testing.assert_allclose(Scalarization.table(s, Y, lam[None]), v[None], atol=1e-12)


def test_lipschitz_constants_are_attained():
    lam = np.array([.2, .5, .3])
    assert WeightedSum().lipschitz(lam) == pytest.approx((WeightedSum()(lam, lam) - 0)/np.linalg.norm(lam))
    v = np.array([9., 0., 9.])
    assert Chebyshev([0., 0., 0.]).lipschitz(lam) == Chebyshev(0.)(v + [0, 1, 0], lam) - Chebyshev(0.)(v, lam) == .5


@pytest.mark.parametrize('law', [linear_weights, chebyshev_weights, Dirac([.2, .3, .5])])
def test_laws(law):
    one, many = law(3, 0), law(3, 0, 1000)
    assert one.shape == (3,) and many.shape == (1000, 3) and law(3, 0, 0).shape == (0, 3)
    np.testing.assert_allclose(many.sum(1), 1)
    np.testing.assert_array_equal(many[0], one)
    assert (many > 0).all() and repr(law)
    rng = np.random.default_rng(4)
    np.testing.assert_array_equal([law(3, rng) for _ in range(5)], law(3, np.random.default_rng(4), 5))
    with pytest.raises(ValueError, match='n must be an integer >= 1'): law(0, 0)


def test_laws_of_one_task_and_of_many():
    for law in (linear_weights, chebyshev_weights): np.testing.assert_array_equal(law(1, 0, 5), np.ones((5, 1)))
    u = 1 - np.random.default_rng(0).random((50, 7))
    np.testing.assert_allclose(linear_weights(7, 0, 50), u/u.sum(1, keepdims=True))
    alpha = u.sum(1, keepdims=True)/u                            # the paper's form, before the norm cancels
    np.testing.assert_allclose(chebyshev_weights(7, 0, 50), alpha/alpha.sum(1, keepdims=True))


@pytest.mark.parametrize('call, says', [
    (lambda: pareto_mask([1., 2.]), 'Y must have shape'), (lambda: pareto_mask([[1., np.inf]]), 'Y must be finite'), (lambda: pareto_front([[np.nan]]), 'Y must be finite'),
    (lambda: dominates([1., 2.], [1.]), 'a and b'), (lambda: dominates(1., 2.), 'a and b'),
    (lambda: WeightedSum()([1., 2.], [1.]), 'lam must hold 2 weights'), (lambda: WeightedSum()([1., 2.], [1., np.nan]), 'lam must be >= 0'),
    (lambda: Chebyshev(0.)([1., 2.], [1., -1.]), 'lam must be >= 0'), (lambda: Chebyshev([0.]*3)([1., 2.], [1., 1.]), 'z must hold one number a task'),
    (lambda: Chebyshev([np.nan]), 'z must be finite'), (lambda: Chebyshev([[0.]]), r'z must have shape \(n,\)'), (lambda: Chebyshev('z'), 'z must be an array of numbers'),
    (lambda: WeightedSum().table(np.ones((2, 2)), [[1.]]), 'lam must hold 2 weights'),
    (lambda: Dirac([0., 0.]), 'lam must be >= 0 and not all zero'), (lambda: Dirac([-1., 2.]), 'lam must be >= 0'), (lambda: Dirac([]), 'lam must be >= 0'),
    (lambda: Dirac([np.inf]), 'lam must be finite'), (lambda: Dirac(1.), r'lam must have shape \(n,\)'), (lambda: Dirac([1.])(2), 'lam must hold 2 weights'),
    (lambda: linear_weights(2, 'a'), 'rng must be'), (lambda: linear_weights(2, 0, -1), 'size must be'), (lambda: chebyshev_weights(2.5, 0), 'n must be'),
    (lambda: bayes_regret(np.zeros((0, 2)), [[1., 1.]], WeightedSum(), [[1., 1.]]), 'F must hold'),
    (lambda: bayes_regret([[1., 1.]], [[1.]], WeightedSum(), [[1., 1.]]), 'picks must have 2 columns'),
    (lambda: bayes_regret([[1., 1.]], [[1., 1.]], WeightedSum(), [[1.]]), 'lams must have 2 columns'),
    (lambda: bayes_regret([[1., 1.]], [[1., 1.]], WeightedSum(), np.zeros((0, 2))), 'lams must hold at least one'),
    (lambda: cumulative_regret([[1., 1.]], [[1., 1.]], WeightedSum(), [[1., 1.], [1., 1.]]), 'weights must have one row a pick, 1, got 2'),
])
def test_bad_input_is_named(call, says):
    with pytest.raises(ValueError, match=says): call()


@given(moderate, st.integers(0, 2**32), st.integers(1, 9))
def test_regrets_against_their_definitions(F, seed, T):
    eps = 1e-14                                                  # a matrix product and a sum round differently
    rng = np.random.default_rng(seed)
    n, picks = F.shape[1], F[rng.integers(len(F), size=T)]
    lams = linear_weights(n, rng, 4)
    own = chebyshev_weights(n, rng, T)
    for s in (WeightedSum(), Chebyshev(F.min(0) - 1)):
        R, se = bayes_regret(F, picks, s, lams)
        r = np.array([[max(s(y, w) for y in F) - max(s(y, w) for y in picks[:t]) for w in lams] for t in range(1, T + 1)])
        np.testing.assert_allclose(R, r.mean(1), atol=1e-12)
        np.testing.assert_allclose(se, r.std(1, ddof=1)/2, atol=1e-12)
        assert (R >= -eps).all() and (np.diff(R) <= eps).all()
        R, se = cumulative_regret(F, picks, s, own)
        r = np.array([max(s(y, w) for y in F) - s(p, w) for p, w in zip(picks, own)])
        np.testing.assert_allclose(R, np.cumsum(r), atol=1e-12)
        assert np.isnan(se[0]) and (np.diff(R) >= -eps).all()
        np.testing.assert_allclose(se[1:], [np.sqrt(t)*r[:t].std(ddof=1) for t in range(2, T + 1)], atol=1e-7)
        full, _ = bayes_regret(F, F, s, lams)                    # all arms visited
        assert abs(full[-1]) <= eps


def test_regrets_of_nothing_and_of_one_weight():
    F = np.array([[1., 2.], [2., 1.]])
    assert all(len(a) == 0 for a in cumulative_regret(F, np.zeros((0, 2)), WeightedSum(), np.zeros((0, 2))))
    R, se = bayes_regret(F, F[:1], WeightedSum(), [[.5, .5]])
    assert R.tolist() == [0.] and np.isnan(se[0])


def test_regrets_in_blocks_are_the_same():
    rng = np.random.default_rng(0)
    F, picks, w = rng.normal(size=(9000, 3)), rng.normal(size=(1300, 3)) - 5, linear_weights(3, 1, 1300)
    s = Chebyshev(F.min(0))
    best = s.table(F, w).max(1)
    np.testing.assert_allclose(bayes_regret(F, picks, s, w)[0][0], (best - s(picks[0], w)).mean())
    np.testing.assert_allclose(cumulative_regret(F, picks, s, w)[0][-1], (best - s(picks, w)).sum())


def test_bayes_regret_is_bounded_by_cumulative_regret_and_transport():
    "Proposition 4 on random runs, two tasks."
    from scipy.stats import wasserstein_distance
    for seed in range(30):
        rng = np.random.default_rng(seed)
        F, T = rng.random((20, 2)), int(rng.integers(1, 30))
        own, lams = chebyshev_weights(2, rng, T), chebyshev_weights(2, rng, 200)
        s = Chebyshev([0., 0.])
        arms = s.table(F, own).argmax(1) if seed % 2 else rng.integers(20, size=T)
        slack = 2*F.max()*wasserstein_distance(own[:, 0], lams[:, 0])
        assert bayes_regret(F, F[arms], s, lams)[0][-1] <= cumulative_regret(F, F[arms], s, own)[0][-1]/T + slack + 1e-12


def test_hypervolume():
    pytest.importorskip('moocore')
    assert hypervolume([[1., 1.], [2., .5], [-1., 9.]], [0., 0.]) == pytest.approx(1.5)
    assert hypervolume([[1., 1.]], [1., 0.]) == 0 and hypervolume([[3.]], [1.]) == pytest.approx(2.)
    with pytest.raises(ValueError, match='ref must have 2 columns'): hypervolume([[1., 1.]], [0.])


def test_hypervolume_without_moocore(monkeypatch):
    monkeypatch.setitem(sys.modules, 'moocore', None)
    with pytest.raises(ImportError, match='pip install moocore'): hypervolume([[1., 1.]], [0., 0.])
