"Nyström posteriors and MT-BKB: odd sizes, odd input, broken runs, and the identities that tie them to the exact algorithms."
import tracemalloc
import numpy as np
import pytest
from mtbo_nb.core.domains import Box, Finite
from mtbo_nb.core.kernels import SE, Matern
from mtbo_nb.multitask.mtbkb import ITBKB, MTBKB, certified_radius, theorem_3_radius
from mtbo_nb.multitask.mtkb import MTKB, ellipsoid_bound
from mtbo_nb.multitask.mtkernels import ICM, Diagonal, MTCallable, RKHSFunction, SumSeparable, TaskSimilarity, as_mtkernel, mercer_features
from mtbo_nb.multitask.mtposterior import mt_posterior
from mtbo_nb.multitask.nystrom import NystromPosterior, accuracy, draw_dictionary, theorem_q
from mtbo_nb.multitask.pareto import Chebyshev, Dirac, WeightedSum

pytestmark = pytest.mark.filterwarnings('ignore:no query entered')
line = Finite(np.linspace(0, 1, 21)[:, None])
A = np.random.default_rng(0).normal(size=(3, 3))

def block(X, Z):
    "Matrix-valued, not separable: two lengthscales coupled through a third."
    s = (X[:, None] - Z[None]).sum(-1)**2
    a, b, c = np.exp(-s/.02), np.exp(-s/.08), np.exp(-s/.045)
    g = np.array([[1., 0.], [0., 1.]])
    return a[..., None, None]*g*[1., 0.] + b[..., None, None]*g*[0., 1.] + .3*c[..., None, None]*np.ones((2, 2))

kernels = {'icm': ICM(SE(.2), A@A.T), 'one task': ICM(SE(.2), [[1.]]), 'scalar': Matern(1.5, .2), 'rank one': ICM(Matern(.5, .3), np.ones((3, 3))), 'zero task': ICM(SE(.2), np.diag([1., 0.])),
           'zero': ICM(SE(.2), np.zeros((2, 2))), 'omega': TaskSimilarity(SE(.2), .2, 5), 'sum': SumSeparable([(SE(.2), A@A.T), (Matern(1.5, .2), np.eye(3))]),
           'diagonal': Diagonal([SE(.1), SE(.4), 3.*SE(.1)]), 'callable': MTCallable(block, 2)}
algos = {'theorem': lambda G, d, **k: MTBKB(G, d, **k), 'certified': lambda G, d, **k: MTBKB(G, d, bound='direction', radius='certified', q=1.5, **k),
         'printed': lambda G, d, **k: MTBKB(G, d, leverage=False, q=.5, **k), 'lazy': lambda G, d, **k: MTBKB(G, d, schedule='lazy', radius='certified', q=2., **k),
         'ellipsoid': lambda G, d, **k: MTBKB(G, d, bound='ellipsoid', schedule='lazy', **k), 'everything': lambda G, d, **k: MTBKB(G, d, q=np.inf, **k), 'itbkb': lambda G, d, **k: ITBKB(as_list(G), d, q=2., **k),
         'itbkb2': lambda G, d, **k: ITBKB(as_list(G), d, radius='theorem', bound='direction', **k)}
def as_list(G): return G if hasattr(G, 'task') else [G]
def tasks(G): return getattr(G, 'n', 1)

@pytest.mark.parametrize('kernel', kernels)
@pytest.mark.parametrize('algo', algos)
def test_odd_sizes(kernel, algo):
    "One arm, identical arms, constant and huge outputs, one round: all numbers stay finite, the dictionary is never empty nor larger than the distinct queries."
    G, n = kernels[kernel], tasks(kernels[kernel])
    for s in (Chebyshev(np.zeros(n)), WeightedSum()):
        for domain in (line, Finite([[.5]]), Finite([[.5], [.5], [.5]])):
            alg = algos[algo](G, domain, scalarize=s, rng=0)
            for y in (lambda x: np.full(n, 3.), lambda x: np.zeros(n), lambda x: 1e6*np.ones(n)):
                alg.run(y, alg.t + 1); alg.run(y, alg.t + 3)
            assert alg.t == 12 and domain.contains(alg.history.X).all() and np.isfinite(alg.history.radii).all() and (alg.history.radii > 0).all()
            m, u = alg.history.dictionary, [len(np.unique(alg.history.X[:t], axis=0)) for t in range(12)]
            assert m[0] == 0 and (m[1:] >= 1).all() and (m <= u).all()
            assert np.isfinite(alg.post.mean()).all() and np.isfinite(alg.post.cov()).all() and (alg.post.norm() >= 0).all()
            assert len(repr(alg)) < 400 and len(repr(alg.post)) < 400

@pytest.mark.parametrize('kernel', ['icm', 'scalar', 'sum', 'zero', 'callable'])
@pytest.mark.parametrize('algo', algos)
def test_save_and_continue(kernel, algo, tmp_path):
    "A run broken anywhere, also before its first observation, and loaded is the unbroken run: same coins."
    G, n = kernels[kernel], tasks(kernels[kernel])
    f = RKHSFunction(G, [[.1], [.7]], np.ones((2, n)))
    observe = lambda x, rng: f(x[None])[0] + .1*rng.normal(size=n)
    whole = algos[algo](G, line, rng=5).run(observe, 14)
    for stop in (0, 1, 6):
        part = algos[algo](G, line, rng=5).run(observe, stop)
        part.ask(); part.save(tmp_path/'run.npz')
        kw = {} if kernel != 'callable' else dict(kernels=part.kernels) if 'itbkb' in algo else dict(G=G)
        again = type(part).load(tmp_path/'run.npz', **kw).run(observe, 14)
        for c in ('X', 'Y', 'weights', 'radii', 'dictionary'): np.testing.assert_array_equal(getattr(again.history, c), getattr(whole.history, c))

@pytest.mark.parametrize('algo', algos)
def test_refused_input_changes_nothing(algo):
    alg = algos[algo](kernels['icm'], line, rng=0).run(lambda x: np.ones(3), 4)
    x, coins = alg.ask(), alg.post.rng.bit_generator.state
    for bad, word in [(([9.], np.ones(3)), 'x must lie in the domain'), ((x, np.ones(2)), 'y must have shape'), ((x, [1., np.nan, 0.]), 'y must be finite'), (([[.1, .2]], np.ones(3)), 'x must have 1 columns')]:
        with pytest.raises(ValueError, match=word): alg.tell(*bad)
    with pytest.raises(ValueError, match='T must be at least the 4'): alg.run(lambda x: np.ones(3), 3)
    np.testing.assert_array_equal(alg.ask(), x)
    assert alg.t == 4 and alg.post.t == 4 and alg.post.rng.bit_generator.state == coins
    alg.tell(x, np.ones(3)); assert alg.t == 5

def test_constructors_name_the_argument():
    G = kernels['icm']
    for kw, word in [(dict(q=0), 'q must be > 0'), (dict(q=-1.), 'q must'), (dict(q=np.nan), 'q must'), (dict(q='many'), 'q must'), (dict(eps=0), 'eps'), (dict(eps=1), 'eps'), (dict(eps=2.), 'eps'), (dict(schedule='x'), 'schedule'),
                     (dict(ratio=.9), 'ratio'), (dict(horizon=0), 'horizon'), (dict(radius='mixture'), 'radius'), (dict(bound='x'), 'bound'), (dict(eta=0), 'eta'), (dict(delta=1.), 'delta'), (dict(rng='x'), 'rng')]:
        with pytest.raises(ValueError, match=word): MTBKB(G, line, **kw)
    with pytest.raises(ValueError, match='G must'): MTBKB('SE', line)
    with pytest.raises(ValueError, match='q must be an integer'): MTBKB(G, line).ask(0)

@pytest.mark.parametrize('seed', range(6))
def test_posterior_is_the_printed_one(seed):
    "Random kernels, sizes, schedules and sequences of arms against the formulas of Section 6 with the dictionary that was drawn."
    rng = np.random.default_rng(seed)
    n, N, T, eta = rng.integers(1, 4), rng.integers(1, 12), rng.integers(1, 200), 10.**rng.uniform(-2, 1)
    B = [(lambda R: R@R.T)(rng.normal(size=(n, rng.integers(1, n + 1)))) for _ in range(2)]
    P = rng.random((N, 2)); j, Y = rng.integers(0, N, T), rng.normal(size=(T, n))
    for G in (ICM(Matern(2.5, .4), B[0]), SumSeparable([(SE(.5), B[0]), (Matern(.5, .3), B[1])]), Diagonal([Matern(.5, s) for s in rng.uniform(.1, 1, n)])):
        for points in (P, None):
            p = NystromPosterior(G, eta, points, q=10.**rng.uniform(-1, 1.5), ratio=rng.choice([1., 1.5, 4.]), rng=seed)
            for i in range(0, T, 7): p.update(P[j[i:i + 7]], Y[i:i + 7])
            K = G(p.dictionary); lam, U = np.linalg.eigh(K); keep = lam > 1e-11*lam[-1]
            E = (U[:, keep]/np.sqrt(lam[keep])).T
            Fx, Fz = E@G(p.dictionary, P[j]), E@G(p.dictionary, P)
            S = np.linalg.inv(Fx@Fx.T + eta*np.eye(len(Fx)))
            cov = (G(P) - Fz.T@Fz + eta*Fz.T@S@Fz).reshape(N, n, N, n)[np.arange(N), :, np.arange(N)]
            np.testing.assert_allclose(p.mean(P), (Fz.T@S@Fx@Y.ravel()).reshape(N, n), atol=1e-6); np.testing.assert_allclose(p.cov(P), cov, atol=1e-6)
            np.testing.assert_allclose(p.gained, np.linalg.slogdet(np.eye(len(Fx)) + Fx@Fx.T/eta)[1], rtol=1e-6, atol=1e-7)
            exact = mt_posterior(G, eta).update(P[j], Y)
            assert exact.logdet <= p.gained + p.missed[1] + 1e-6 and p.quad >= exact.quad - 1e-6*(1 + exact.quad)

def test_long_runs_do_not_drift():
    "Thousands of cheap steps between embeddings, a dictionary that never shrinks: still the exact posterior to 1e-7."
    G, P = ICM(Matern(2.5, .3), A@A.T), np.linspace(0, 1, 40)[:, None]
    rng = np.random.default_rng(0); j, Y = rng.integers(0, 40, 3000), rng.normal(size=(3000, 3))
    for kw in (dict(q=np.inf), dict(q=np.inf, ratio=1e3)):
        p, exact = NystromPosterior(G, .1, P, **kw).update(P[j], Y), mt_posterior(G, .1, P).update(P[j], Y)
        if 'ratio' in kw: assert p.draws < 20                 # its dictionary is old, so compare with itself on fresh embeddings
        else: np.testing.assert_allclose(p.cov(), exact.cov(), atol=1e-7); np.testing.assert_allclose(p.mean(), exact.mean(), atol=1e-6)
        before = p.mean().copy(), p.cov().copy(), p.gained
        for E, S in zip(p._parts, p._sum): E.embed(p._obs[p.copies > 0], p._obs, p.counts, S)
        np.testing.assert_allclose(p.mean(), before[0], atol=1e-6); np.testing.assert_allclose(p.cov(), before[1], atol=1e-7); np.testing.assert_allclose(p.gained, before[2], rtol=1e-8)

@pytest.mark.parametrize('kernel', ['icm', 'scalar', 'sum', 'omega', 'callable'])
def test_everything_in_the_dictionary_is_mtkb(kernel):
    G, n = kernels[kernel], tasks(kernels[kernel])
    f = RKHSFunction(G, [[.1], [.7]], np.array([[1., -1., .5, .2, 1.], [.3, 1., 1., -.5, 1.]])[:, :n])
    observe = lambda x, rng: f(x[None])[0] + .1*rng.normal(size=n)
    for domain in (line, Finite(line.points[::3])):
        kw = dict(b=f.norm, bound='direction', rng=2)
        exact, ours = MTKB(G, domain, **kw).run(observe, 25), MTBKB(G, domain, q=np.inf, radius='certified', **kw).run(observe, 25)
        np.testing.assert_array_equal(ours.history.X, exact.history.X); np.testing.assert_allclose(ours.history.radii, exact.history.radii, rtol=1e-6)

def test_certified_radius_covers_the_worst_function():
    "No noise, the function a poor dictionary represents worst: the radius must reach it, and the plain norm b does not."
    X = np.random.default_rng(0).random((14, 1)); k = Matern(.5, .4)
    p = NystromPosterior(k, .15, X, q=1.2, rng=2).update(X, np.zeros((14, 1)))
    T = mercer_features(as_mtkernel(k), X, tol=1e-14)[:, :, 0]                   # rows Φ(x_i)
    D = T[(X == p.dictionary[:, 0]).any(1)].T
    Pt = D@np.linalg.pinv(D); M = Pt@T.T@T@Pt + .15*np.eye(len(Pt))
    L = np.linalg.cholesky(M); U, s, Vt = np.linalg.svd(L.T@(np.eye(len(M)) - np.linalg.solve(M, Pt@T.T@T)))
    theta = Vt[0]                                             # unit norm
    p = NystromPosterior(k, .15, X, q=1.2, rng=2).update(X, T@theta[:, None])    # same coins
    err = theta - np.linalg.solve(M, Pt@T.T@(T@theta))
    np.testing.assert_allclose(T@err, T@theta - p.mean()[:, 0], atol=1e-8)
    worst = np.sqrt(err@M@err/.15)                            # sup of |f - μ~| over its standard deviation, all points of the space
    assert 1.2 < worst <= certified_radius(p, 1., 0., .1) + 1e-9

def test_theorem_3_radius():
    rho = 1.2/.8
    np.testing.assert_allclose(theorem_3_radius(2., 3., .5, .25, .1, .2), 3*(1 + 1/np.sqrt(.8)) + np.sqrt(2*np.log(20) + rho*2))
    np.testing.assert_allclose(theorem_3_radius(2., 3., .5, .25, .1, .2, .7) - theorem_3_radius(2., 3., .5, .25, .1, .2), 3*(np.sqrt((1 + rho*.7)/.8) - 1/np.sqrt(.8)))

def test_batches():
    f = RKHSFunction(kernels['icm'], [[.1], [.7]], np.ones((2, 3)))
    observe = lambda x, rng: f(x[None])[0] + .1*rng.normal(size=3)
    for algo in algos:
        alg = algos[algo](kernels['icm'], line, rng=1)
        B = alg.ask(4)                                        # before any observation
        assert B.shape == (4, 1) and len(np.unique(B)) > 1
        alg.tell(B[2], f(B[2][None])[0]); other = line.points[~np.isin(line.points, B)][:1, None]; alg.tell(other, np.zeros((1, 3)))        # one of them, then an unasked one
        np.testing.assert_array_equal(alg.ask(4), B[[0, 1, 3]])
        alg.run(observe, 5); assert alg._round is None and alg.t == 5               # run finishes an open batch
        np.testing.assert_array_equal(np.isnan(alg.history.weights).any(1), alg.history.X[:, 0] == other[0, 0])
        assert alg.ask(3).shape == (3, 1); assert alg.ask(9, renew=True).shape == (9, 1)
    box = MTBKB(kernels['icm'], Box([0.], [1.]), q=3., rng=0).run(observe, 3)
    assert box.ask(3).shape == (3, 1)

def test_ellipsoid_is_between_truth_and_direction():
    "Points of the ellipsoid never exceed the bound, and some come close to it."
    rng = np.random.default_rng(0)
    for n in (1, 2, 5, 20):
        R = rng.normal(size=(30, n, n)); cov, mu, lam, z = R@R.transpose(0, 2, 1), rng.normal(size=(30, n)), rng.random(n), rng.normal(size=n)
        u = ellipsoid_bound(mu, cov, lam, z, 1.5)
        v = rng.normal(size=(4000, 1, n)); v /= np.linalg.norm(v, axis=-1, keepdims=True)
        values = (lam*(mu + 1.5*np.einsum('iab,sxb->sia', R, v) - z)).min(-1).max(0)
        assert (values <= u + 1e-7).all() and (n > 2 or (values > u - .05*(1 + abs(u))).all())
        direction = (lam*(mu + 1.5*np.sqrt(np.einsum('iaa->ia', cov)) - z)).min(1)
        assert (u <= direction + 1e-12).all()
    assert ellipsoid_bound(np.zeros((0, 3)), np.zeros((0, 3, 3)), np.ones(3), 0., 1.).shape == (0,)

def test_lazy_draws_rarely_and_ends_alike():
    "After the first rounds a lazy run draws in a small fraction of the rounds; its posterior stays within the stated factor of the exact one."
    G, P = ICM(SE(.15), A@A.T), np.linspace(0, 1, 100)[:, None]
    rng = np.random.default_rng(0); j = rng.integers(0, 100, 1500)
    p = NystromPosterior(G, .1, P, q=30., ratio=2., rng=0)
    for i in j: p.update(P[i], np.zeros(3)); assert p.spent <= 1 + 1e-12
    exact = mt_posterior(G, .1, P).update(P[j], np.zeros((1500, 3)))
    assert p.draws < 150
    top = np.linalg.eigvalsh(p.cov())[:, -1]/np.linalg.eigvalsh(exact.cov())[:, -1]
    assert top.max() < 2.5 and top.min() > .7

def test_memory_is_n_times_m():
    "2,000 arms, 1,500 rounds: a few tables of N x m, far from N x t or N x u."
    P = np.random.default_rng(0).random((2000, 2)); G = ICM(SE(.25), [[1., .3], [.3, 1.]])
    tracemalloc.start()
    alg = MTBKB(G, Finite(P), q=1.5, schedule='lazy', radius='certified', rng=0).run(lambda x, r: r.normal(size=2), 1500)
    peak = tracemalloc.get_traced_memory()[1]; tracemalloc.stop()
    m = alg.history.dictionary.max()
    assert peak < 12*2000*m*8, (peak/2000/8, m)

def test_horizon_doubles():
    alg = MTBKB(kernels['scalar'], line, horizon=10, rng=0)
    assert alg.q_now == theorem_q(.1, .1, 10)
    alg.tell(line.points[np.zeros(11, int)], np.zeros(11)); assert alg.q_now == theorem_q(.1, .1, 20)

def test_coins_have_the_law_of_algorithm_2():
    "Aggregated coins against coin by coin: the chance to be in, for several counts."
    rng = np.random.default_rng(0); norms, c = np.array([.5, .05, 1.]), np.array([1, 30, 3])
    once = np.array([draw_dictionary(norms, c, .4, 1., rng)[0] > 0 for _ in range(20_000)]).mean(0)
    single = np.array([[(rng.random(k) < min(.4*v, 1)).any() for v, k in zip(norms, c)] for _ in range(20_000)])
    single[~single.any(1), 2] = True
    assert (np.abs(once - single.mean(0)) < 5*np.sqrt(.5/20_000)).all()

def test_empty_dictionary_is_announced():
    p = NystromPosterior(kernels['scalar'], .1, line.points, q=1e-9, rng=0)
    with pytest.warns(RuntimeWarning, match='largest variance is kept'): p.update(line.points[:3], np.zeros((3, 1)))
    assert p.m == 1

@pytest.mark.parametrize('leverage', [True, False])
def test_probabilities(leverage):
    "p is q times the norm before the observation, over η or as printed."
    p = NystromPosterior(kernels['icm'], .3, line.points, q=.7, leverage=leverage, rng=0).update(line.points[:9], np.ones((9, 3)))
    before = p.norm(line.points[:10]); p.update(line.points[9], np.ones(3))
    np.testing.assert_allclose(p.p, np.minimum(.7*before/(.3 if leverage else 1.), 1.), rtol=1e-9)
