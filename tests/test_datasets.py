"The tables the package carries, the fit of a separable kernel, and what problems promise."
import pickle

import numpy as np
import pytest

from mtbo_nb.core.domains import Box, Finite
from mtbo_nb.core.kernels import SE, White
from mtbo_nb.lab.datasets import fit_separable, meuse, meuse_problem
from mtbo_nb.lab.problems import Problem, Table, heuristic_b, perturbed_sine, problems, reference_point, rkhs_function, rkhs_problem
from mtbo_nb.multitask.mtkernels import ICM, Diagonal, RKHSFunction
from mtbo_nb.multitask.pareto import Chebyshev


def test_meuse_is_the_table_everybody_uses():
    "Against the copy in scikit-gstat, row by row."
    skgstat = pytest.importorskip('skgstat')
    data = meuse()
    assert data.names == ('cadmium', 'copper', 'lead', 'zinc') and data.sites.shape == (155, 2) and data.metals.shape == (155, 4)
    for i, metal in enumerate(data.names):
        sites, values = skgstat.data.meuse(metal)['sample']
        np.testing.assert_array_equal(data.sites, sites)
        np.testing.assert_array_equal(data.metals[:, i], np.ravel(values))


def test_meuse_problem_splits_standardises_and_knows_its_norm():
    data, p = meuse(), meuse_problem(3)
    where = Finite(data.sites/1000).index(p.domain.points)
    held = np.setdiff1d(np.arange(155), where)
    assert len(where) == 93 and (where >= 0).all() and len(held) == 62
    logs = np.log(data.metals)
    np.testing.assert_allclose(p.values, (logs[where] - logs[held].mean(0))/logs[held].std(0))
    G = p.kernel(p.domain.points)
    np.testing.assert_allclose(p.b**2, p.values.ravel()@np.linalg.solve(G, p.values.ravel()))
    D = Diagonal([p.kernel.task(i) for i in range(4)])(p.domain.points)
    np.testing.assert_allclose(p.diagonal_b**2, p.values.ravel()@np.linalg.solve(D, p.values.ravel()))
    nugget = (p.kernel.k.diag(p.domain.points[:1])[0] - 1)*p.kernel.B.diagonal()
    np.testing.assert_allclose(p.noise, np.sqrt(nugget.max()))


def test_meuse_problem_is_a_function_of_its_seed():
    a, b, c = meuse_problem(1), meuse_problem(np.random.default_rng(1)), meuse_problem(2)
    np.testing.assert_array_equal(a.values, b.values)
    assert a.b == b.b and a.b != c.b
    assert meuse_problem(1, noise=.2).noise == .2 and meuse_problem(1, b=7).b == 7 and meuse_problem(1, b=7).diagonal_b == 14
    assert meuse_problem(1, b='heuristic').b == heuristic_b(a.values, a.kappa) < a.b
    assert meuse_problem(1, share=.9).domain.N == 15


def nll(k, tau, B, X, R): # dense, nothing shared with the code
    S = np.kron(k(X) + tau*np.eye(len(X)), B)
    return (R.ravel()@np.linalg.solve(S, R.ravel()) + np.linalg.slogdet(2*np.pi*S)[1])/2


@pytest.mark.parametrize('n', [1, 3])
def test_fit_is_a_maximum_of_the_likelihood(n):
    rng = np.random.default_rng(n)
    X, R = rng.random((40, 2)), rng.normal(size=(40, n))
    R += 2*np.sin(5*X[:, :1])
    f = fit_separable(X, R, SE(.3))
    np.testing.assert_allclose(f.nll, nll(f.k, f.tau, f.B, X, R))
    np.testing.assert_allclose(f.B, R.T@np.linalg.solve(f.k(X) + f.tau*np.eye(40), R)/40)
    for step in (.98, 1.02):
        assert nll(SE(f.k.ls*step), f.tau, f.B, X, R) > f.nll and nll(f.k, f.tau*step, f.B, X, R) > f.nll and nll(f.k, f.tau, f.B*step, X, R) > f.nll
    assert fit_separable(X, R, SE(.3), tau=.5).tau == .5
    if n == 1: np.testing.assert_allclose(fit_separable(X, R[:, 0], SE(.3)).nll, f.nll)


def test_problem_of_one_arm_and_one_task():
    D = Finite([[.5]])
    p = Problem('one', Table(D, [[2.]]), D, SE(1.), noise=.1, b=2., ref_point=1.)
    assert p.n == 1 and p.optimal.tolist() == [True] and p.front.tolist() == [[2.]] and p.observe([.5], 0).shape == (1,) and p.diagonal_b == 2
    one = rkhs_function(1, 0, m=1, centres=1)
    assert one.values.shape == (1, 1) and one.b == pytest.approx(abs(one.values[0, 0])/np.sqrt(one.kappa)) and (one.values > one.ref_point).all()


def test_duplicate_arms_and_constant_outputs():
    D = Finite([[0.], [1.], [0.]])
    p = Problem('twins', Table(D, [[1., 3.]]*3), D, ICM(SE(1.), np.eye(2)), .0, 4., reference_point(np.ones((3, 2))))
    assert p.optimal.all() and len(p.front) == 1
    np.testing.assert_array_equal(p.observe(D.points, 0), [[1., 3.]]*3)
    z = reference_point([[1., 0.], [1., 2.]])
    np.testing.assert_allclose(z, [.95, -.1])


@pytest.mark.parametrize('omega', [.2, 1.])
def test_perturbed_sine_is_its_formula_with_its_exact_norm(omega):
    p, x = perturbed_sine(omega=omega), Finite.grid(101).points
    W = np.array([[1., -.8, .6], [-.9, 1., .3], [.4, .7, -1.], [-.5, -.9, .9]])
    np.testing.assert_allclose(p.values, np.sin(2*np.pi*x) + .6*np.exp(-(x - [.05, .4, .7])**2/.02)@W.T, atol=1e-5)
    c = p.f.C.ravel()
    np.testing.assert_allclose(p.b**2, c@p.kernel(p.f.X)@c)
    np.testing.assert_allclose(p.f(p.domain.points).ravel(), p.kernel(p.domain.points, p.f.X)@c)


def test_observations_are_the_function_plus_noise_of_the_stated_size():
    p = perturbed_sine(noise=.3)
    y = p.observe(np.tile(p.domain.points[30], (5000, 1)), 0)
    np.testing.assert_allclose(y.mean(0), p.values[30], atol=4*.3/np.sqrt(5000))
    np.testing.assert_allclose(np.cov(y.T), .09*np.eye(4), atol=4*.09*np.sqrt(2/5000))
    np.testing.assert_array_equal(p.observe(p.domain.points[3], 7), p.observe(p.domain.points[3], np.random.default_rng(7)))


@pytest.mark.parametrize('name', list(problems))
def test_registered_problems_keep_their_promises(name):
    p, q = problems[name](rng=0), pickle.loads(pickle.dumps(problems[name](rng=0)))
    assert p.name == name and len(p.labels) == p.n and repr(p) and p.about
    np.testing.assert_array_equal(p.reference, q.reference)
    if isinstance(p.domain, Finite): np.testing.assert_allclose(p.f(p.domain.points[5:7]), p.values[5:7], atol=1e-10)   # rounding differs with the number of points
    assert (isinstance(p.domain, Box) and p.n == 2) or np.linalg.norm(p.reference, axis=1).max() <= np.sqrt(p.kappa)*p.b*(1 + 1e-9)   # b is a guess for ZDT
    assert p.diagonal_b <= np.sqrt(p.n)*p.b*(1 + 1e-9)
    s, F = Chebyshev(p.ref_point), p.front                       # every optimal arm wins for some weight
    w = 1/(F - p.ref_point)
    best = s.table(p.reference, w/w.sum(1, keepdims=True)).max(1)
    np.testing.assert_allclose(best, s(F, w/w.sum(1, keepdims=True)))


D2 = Finite([[0.], [1.]])
two = Table(D2, [[1., 2.], [3., 4.]])
G2 = ICM(SE(1.), np.eye(2))


@pytest.mark.parametrize('call, says', [
    (lambda: Problem('p', two, 'D', G2, .1, 1., [0., 0.]), 'domain must be a Finite or a Box'),
    (lambda: Problem('p', 3, D2, G2, .1, 1., [0., 0.]), 'f must be a function'),
    (lambda: Problem('p', two, D2, 'G', .1, 1., [0., 0.]), 'G must be a multi-task kernel'),
    (lambda: Problem('p', two, D2, G2, -.1, 1., [0., 0.]), 'noise must be >= 0'),
    (lambda: Problem('p', two, D2, G2, .1, np.nan, [0., 0.]), 'b must be >= 0'),
    (lambda: Problem('p', two, D2, G2, .1, 1., [0.]), 'ref_point must have 2 columns'),
    (lambda: Problem('p', two, D2, G2, .1, 1., [0., 0.], labels=['a']), 'labels must name 2 tasks'),
    (lambda: Problem('p', lambda X: X, Box.unit(1), SE(1.), .1, 1., [0.]).values, 'domain must be Finite'),
    (lambda: Problem('p', two, D2, G2, .1, 1., [0., 0.]).observe([.5], 0), 'x must lie in'),
    (lambda: Problem('p', two, D2, G2, .1, 1., [0., 0.]).observe([0., 0.], 0), 'x must have 1 columns'),
    (lambda: Problem('p', two, D2, G2, .1, 1., [0., 0.]).observe([0.], 'a'), 'rng must be'),
    (lambda: two([[.5]]), 'X must hold arms'), (lambda: Table(D2, [[1.]]), 'values must have one row an arm, 2, got 1'), (lambda: Table(D2, [[1.], [np.nan]]), 'values must be finite'),
    (lambda: Table(Box.unit(1), [[1.]]), 'domain must be a Finite'),
    (lambda: reference_point([[1.]], 0.), 'margin must be > 0'), (lambda: reference_point(np.zeros((0, 2))), 'F must hold'),
    (lambda: heuristic_b([[1.]], 0.), 'kappa must be > 0'),
    (lambda: rkhs_problem('p', RKHSFunction(G2, D2.points, [[1., 0.], [0., 1.]]), D2, .1, b='nrm'), "b must be 'norm', 'heuristic' or a number"),
    (lambda: rkhs_function(0), 'n must be'), (lambda: rkhs_function(2, m=3, centres=4), 'centres must be at most m=3'), (lambda: rkhs_function(2, ls=-1.), 'ls must be'),
    (lambda: perturbed_sine(omega=0.), 'omega must be > 0'), (lambda: perturbed_sine(omega=2.), 'omega must lie in'), (lambda: perturbed_sine(noise=-1.), 'noise must be >= 0'),
    (lambda: meuse_problem(share=0.), 'share must lie'), (lambda: meuse_problem(share=.05), 'share must hold out at least 10'), (lambda: meuse_problem(share=.999), 'share must hold out'),
    (lambda: meuse_problem(noise=-1.), 'noise must be >= 0'), (lambda: meuse_problem('seed'), 'rng must be'),
    (lambda: fit_separable([[0.], [1.]], [[1., 2.], [2., 4.]], SE(1.)), 'R must have rank 2'),
    (lambda: fit_separable([[0.], [1.]], [[1.], [np.nan]], SE(1.)), 'R must be finite'),
    (lambda: fit_separable([[0.], [1.]], [[1.]], SE(1.)), 'R must have shape'),
    (lambda: fit_separable([[0.], [1.]], [[1.], [0.]], SE(1.), tau=-1.), 'tau must be > 0'),
])
def test_bad_input_is_named(call, says):
    with pytest.raises(ValueError, match=says): call()


def test_the_nugget_keeps_duplicate_sites_apart():
    X = np.array([[0.], [0.], [1.], [1.], [2.], [2.]])
    f = fit_separable(X, [[1.], [1.2], [-1.], [-.8], [.1], [-.1]], SE(1.))
    K = (f.k + f.tau*White(1.))(X)
    assert np.isfinite(f.nll) and f.tau > 0 and np.linalg.eigvalsh(K)[0] >= -1e-12
