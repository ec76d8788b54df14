"Shifted Branin-Hoo, ZDT and DTLZ2: the formulas, the fronts, and comparisons on a box."
import numpy as np
import pytest

from mtbo_nb.core.domains import Box, Finite
from mtbo_nb.lab.experiments import compare
from mtbo_nb.lab.problems import BRANIN_MEAN, BRANIN_SD, Problem, branin, branin_box, dtlz2, problems, shifted_branin, zdt
from mtbo_nb.multitask.mtkernels import ICM, Diagonal
from mtbo_nb.multitask.pareto import Chebyshev, WeightedSum, dominates


def test_branin_minima_and_shifts():
    x = np.array([[-np.pi, 12.275], [np.pi, 2.275], [9.42478, 2.475]])
    np.testing.assert_allclose(branin((x + [5, 0])/15), .397887, atol=1e-5)
    p, U = branin_box(), Box.unit(2).sample(300, 0)
    for i in (0, 8): np.testing.assert_allclose(p.f(U)[:, i], (BRANIN_MEAN - branin(U + .01*(i + 1)))/BRANIN_SD, atol=.01)
    X = Finite.grid(13, 2).points                                                    # the norm: f is spanned by these centres
    G, y = p.kernel(X), p.f(X).ravel()
    np.testing.assert_allclose(p.b**2, y@np.linalg.lstsq(G, y, rcond=1e-14)[0], rtol=1e-3)
    D = Diagonal([p.kernel.task(i) for i in range(9)])(X)
    np.testing.assert_allclose(p.diagonal_b**2, y@np.linalg.lstsq(D, y, rcond=1e-14)[0], rtol=1e-3)
    assert shifted_branin(n=3, m=5).values.shape == (25, 3)


@pytest.mark.parametrize('kind', [1, 2, 3])
def test_zdt_formulas_and_fronts(kind):
    p, X = zdt(kind, d=3), Box.unit(3).sample(500, 1)
    for x, y in zip(X[:20], p.f(X)):
        g = 1 + 9*(x[1] + x[2])/2
        h = {1: 1 - np.sqrt(x[0]/g), 2: 1 - (x[0]/g)**2, 3: 1 - np.sqrt(x[0]/g) - x[0]/g*np.sin(10*np.pi*x[0])}[kind]
        np.testing.assert_allclose(y, [-x[0], -g*h])
    assert not any(dominates(p.f(X), f).any() for f in p.front[::50])                # nothing found lies above the front
    assert not dominates(p.front[::20, None], p.front[None, ::20]).any()
    if kind == 3: assert (np.diff(np.sort(p.front[:, 0])) > .05).sum() == 4           # five pieces


def test_dtlz2_front_is_the_sphere():
    for n, d in ((2, 3), (3, 4), (4, 6)):
        p, X = dtlz2(d=d, n=n), Box.unit(d).sample(400, 1)
        np.testing.assert_allclose((p.f(X)**2).sum(1), (1 + ((X[:, n - 1:] - .5)**2).sum(1))**2)
        np.testing.assert_allclose((p.front**2).sum(1), 1)
        for i in range(n): assert np.isclose(p.front[:, i].min(), -1) and np.isclose(p.front[:, i].max(), 0)
    a, g = np.array([.3, .6])*np.pi/2, 1 + .1**2 + .2**2
    np.testing.assert_allclose(dtlz2().f(np.array([[.3, .6, .6, .3]]))[0], -g*np.array([np.cos(a[0])*np.cos(a[1]), np.cos(a[0])*np.sin(a[1]), np.sin(a[0])]))


def test_reference_on_a_box_holds_the_maximisers():
    p = branin_box(n=2)
    F, rng = p.f(Finite.grid(201, 2).points), np.random.default_rng(0)
    for s in (WeightedSum(), Chebyshev(p.ref_point)):
        lams = rng.dirichlet([1, 1], 100)
        np.testing.assert_allclose(s.table(p.reference, lams).max(1), s.table(F, lams).max(1))


def test_compare_on_a_box_regret_and_hypervolume():
    res = compare('zdt1', ['MT-KB', 'random'], T=12, trials=2, rng=1)
    p = problems['zdt1']()
    for runs in res.runs.values():
        for r in runs:
            assert p.domain.contains(r['X']).all() and (r['cumulative'] > 0).all() and (np.diff(r['bayes']) <= 1e-12).all() and r['bayes'][-1] >= 0
    moocore = pytest.importorskip('moocore')
    r, v = res.runs['random'][0], res.hypervolume['random'][0]
    inside = r['f'][(r['f'] > p.ref_point).all(1)]
    want = moocore.hypervolume(-inside, ref=-p.ref_point)/moocore.hypervolume(-p.front, ref=-p.ref_point)
    np.testing.assert_allclose(v, want); assert 0 < v < 1 and 'hypervolume' in res.table()


def test_bad_arguments():
    for call, says in ((lambda: zdt(4), 'kind'), (lambda: zdt(1, d=1), 'd must'), (lambda: dtlz2(d=2, n=3), 'd must'), (lambda: shifted_branin(omega=0.), 'omega'), (lambda: shifted_branin(n=0), 'n must'),
                       (lambda: Problem('p', lambda X: X, Box.unit(2), ICM(zdt().kernel.k, np.eye(2)), .1, 1., [0., 0.], front=[[1.]]), 'front')):
        with pytest.raises(ValueError, match=says): call()
