"Odd sizes, odd input and broken runs, for every multi-task algorithm."
import os, signal, subprocess, sys, time
from pathlib import Path
import numpy as np
import pytest
from mtbo_nb.core.bandit import Bandit
from mtbo_nb.core.domains import Box, Finite
from mtbo_nb.core.kernels import SE, Matern
from mtbo_nb.multitask.baselines import ITKB, MOBO, RandomSearch
from mtbo_nb.multitask.mtkb import MTKB, SharpMTKB
from mtbo_nb.multitask.mtkernels import ICM, Diagonal, MTCallable, RKHSFunction, SumSeparable, TaskSimilarity
from mtbo_nb.multitask.mtposterior import GeneralPosterior, mt_posterior
from mtbo_nb.multitask.pareto import Chebyshev, Dirac, WeightedSum

line = Finite(np.linspace(0, 1, 21)[:, None])
A = np.random.default_rng(0).normal(size=(3, 3))
kernels = {'icm': ICM(SE(.2), A@A.T), 'one task': ICM(SE(.2), [[1.]]), 'rank one': ICM(Matern(.5, .3), np.ones((3, 3))), 'zero task': ICM(SE(.2), np.diag([1., 0.])),
           'zero': ICM(SE(.2), np.zeros((2, 2))), 'omega': TaskSimilarity(SE(.2), .2, 5), 'sum': SumSeparable([(SE(.2), A@A.T), (Matern(1.5, .2), np.eye(3))]), 'diagonal': Diagonal([SE(.1), SE(.4)])}
algos = {'norm': lambda G, d, **k: MTKB(G, d, **k), 'direction': lambda G, d, **k: MTKB(G, d, bound='direction', **k), 'mixture': lambda G, d, **k: MTKB(G, d, radius='mixture', **k),
         'sharp': SharpMTKB, 'itkb': ITKB, 'itkb2': lambda G, d, **k: ITKB(G, d, radius='theorem', bound='direction', **k), 'mobo': MOBO, 'random': lambda G, d, **k: RandomSearch(d, G.n, **k)}

@pytest.mark.parametrize('kernel', kernels)
@pytest.mark.parametrize('algo', algos)
@pytest.mark.parametrize('scalarize', ['chebyshev', 'sum'])
def test_odd_sizes(kernel, algo, scalarize):
    "One arm, identical arms, constant and huge outputs, one round: nothing special happens, all numbers stay finite."
    G = kernels[kernel]
    s = Chebyshev(np.zeros(G.n)) if scalarize == 'chebyshev' else WeightedSum()
    for domain in (line, Finite([[.5]]), Finite([[.5], [.5], [.5]])):
        alg = algos[algo](G, domain, scalarize=s, rng=0)
        for y in (lambda x: np.full(G.n, 3.), lambda x: np.zeros(G.n), lambda x: 1e6*np.ones(G.n)):
            alg.run(y, alg.t + 1); alg.run(y, alg.t + 3)
        assert alg.t == 12 and domain.contains(alg.history.X).all()
        assert np.isfinite(alg.history.weights).all() and (algo == 'random' or np.isfinite(alg.history.radii).all())
        assert len(repr(alg)) < 400

@pytest.mark.parametrize('kernel', kernels)
@pytest.mark.parametrize('algo', algos)
def test_save_and_continue(kernel, algo, tmp_path):
    "A run broken anywhere and loaded is the unbroken run."
    G = kernels[kernel]
    f = RKHSFunction(G, [[.1], [.7]], np.ones((2, G.n)))
    observe = lambda x, rng: f(x[None])[0] + .1*rng.normal(size=G.n)
    whole = algos[algo](G, line, rng=5).run(observe, 12)
    part = algos[algo](G, line, rng=5).run(observe, 5)
    part.ask()
    part.save(tmp_path/'run.npz')
    again = type(part).load(tmp_path/'run.npz').run(observe, 12)
    for c in ('X', 'Y', 'weights', 'radii'): np.testing.assert_array_equal(getattr(again.history, c), getattr(whole.history, c))

@pytest.mark.parametrize('algo', ['direction', 'sharp', 'mobo', 'random'])
def test_save_and_continue_on_a_box(algo, tmp_path):
    "The same on a box, where the maximiser draws its own starting points."
    G = kernels['icm']
    f = RKHSFunction(G, [[.1, .3], [.7, .6]], np.ones((2, 3)))
    observe = lambda x, rng: f(x[None])[0] + .1*rng.normal(size=3)
    box = Box([0., 0.], [1., 1.])
    whole = algos[algo](G, box, rng=5).run(observe, 7)
    algos[algo](G, box, rng=5).run(observe, 3, save=tmp_path/'run.npz')
    again = Bandit.load(tmp_path/'run.npz').run(observe, 7)
    np.testing.assert_array_equal(again.history.X, whole.history.X)

@pytest.mark.parametrize('algo', algos)
def test_refused_input_changes_nothing(algo):
    G = kernels['icm']
    alg = algos[algo](G, line, rng=0).run(lambda x: np.ones(3), 4)
    x = alg.ask()
    for bad, word in [(([9.], np.ones(3)), 'x must lie in the domain'), ((x, np.ones(2)), 'y must have shape'), ((x, [1., np.nan, 0.]), 'y must be finite'), ((x, [1., np.inf, 0.]), 'y must be finite'),
                      (([[.1, .2]], np.ones(3)), 'x must have 1 columns'), ((x, 'abc'), 'y must')]:
        with pytest.raises(ValueError, match=word): alg.tell(*bad)
    np.testing.assert_array_equal(alg.ask(), x)
    assert alg.t == 4
    alg.tell(x, np.ones(3)); assert alg.t == 5

def test_constructors_name_the_argument():
    G = kernels['icm']
    for kw, word in [(dict(eta=0), 'eta'), (dict(eta=np.nan), 'eta'), (dict(b=-1), 'b must'), (dict(sigma=-1), 'sigma'), (dict(delta=0), 'delta'), (dict(delta=1), 'delta'), (dict(bound='x'), 'bound'),
                     (dict(radius='x'), 'radius'), (dict(rng='x'), 'rng')]:
        with pytest.raises(ValueError, match=word): MTKB(G, line, **kw)
    for make, word in [(lambda: MTKB('SE', line), 'G must'), (lambda: ICM(SE(.2), [[1., 0.], [0., -1.]]), 'B must be positive'), (lambda: ICM(SE(.2), [[1., np.nan], [np.nan, 1.]]), 'B must be finite'),
                       (lambda: Finite(np.zeros((0, 2))), 'points'), (lambda: TaskSimilarity(SE(.1), -.1, 3), 'omega'), (lambda: MTKB(G, 'here'), 'domain'), (lambda: MTKB(G, line, scalarize='sum'), 'scalarize'), (lambda: MTKB(G, line, weights=[1., 0., 0.]), 'weights'), (lambda: MTKB(G, line, scalarize=Chebyshev([0., 0.])), 'z'), (lambda: MTKB(G, line, weights=lambda n, rng: [np.nan]*n).ask(), 'weights')]:
        with pytest.raises(ValueError, match=word): make()

def test_sklearn_kernels_are_kernels():
    from sklearn.gaussian_process.kernels import RBF, Matern as SkMatern
    for ours, theirs in [(SE(.2), RBF(.2)), (Matern(1.5, .3), SkMatern(.3, nu=1.5))]:
        f = RKHSFunction(ICM(ours, A@A.T), [[.2], [.6]], np.ones((2, 3)))
        observe = lambda x, rng: f(x[None])[0] + .1*rng.normal(size=3)
        X1, X2 = (MTKB(ICM(k, A@A.T), line, b=f.norm, rng=1).run(observe, 15).history.X for k in (ours, theirs))
        np.testing.assert_array_equal(X1, X2)

def test_unasked_and_many_at_once():
    alg = MTKB(kernels['icm'], line, rng=0)
    alg.ask(); w = alg._weight
    alg.tell(line.points[7:14], np.ones((7, 3)))
    assert alg.t == 7 and np.isnan(alg.history.weights).all()
    one = MTKB(kernels['icm'], line, rng=0)
    one.ask()
    for x in line.points[7:14]: one.tell(x, np.ones(3))
    np.testing.assert_array_equal(alg.ask(), one.ask())
    alg.tell(alg.ask(), np.ones(3)); np.testing.assert_array_equal(alg.history.weights[-1], w)

@pytest.mark.parametrize('seed', range(5))
def test_engines_agree(seed):
    "Random kernels, sizes and query sequences: every engine against the dense formula, to 1e-8."
    rng = np.random.default_rng(seed)
    n, N, T = rng.integers(1, 5), rng.integers(1, 12), rng.integers(1, 40)
    B = [(lambda R: R@R.T)(rng.normal(size=(n, rng.integers(1, n + 1)))) for _ in range(2)]
    eta, P = 10.**rng.uniform(-3, 1), rng.random((N, 2))
    j, Y = rng.integers(0, N, T), rng.normal(size=(T, n))
    for G in (ICM(Matern(2.5, .4), B[0]), SumSeparable([(SE(.5), B[0]), (Matern(.5, .3), B[1])]), Diagonal([SE(s) for s in rng.uniform(.1, 1, n)])):
        K = G(P[j]); C = G(P[j], P); S = np.linalg.inv(K + eta*np.eye(len(K)))
        mean, cov = (C.T@S@Y.ravel()).reshape(N, n), (G(P) - C.T@S@C).reshape(N, n, N, n)[np.arange(N), :, np.arange(N)]
        for p in (GeneralPosterior(G, eta), mt_posterior(G, eta), mt_posterior(G, eta, P)):
            p.update(P[j], Y)
            np.testing.assert_allclose(p.mean(P), mean, atol=1e-8*max(1, 1/eta)); np.testing.assert_allclose(p.cov(P), cov, atol=1e-8)
            np.testing.assert_allclose(p.logdet, np.linalg.slogdet(np.eye(len(K)) + K/eta)[1], rtol=1e-8, atol=1e-10)
            np.testing.assert_allclose(p.quad, Y.ravel()@np.linalg.solve(np.eye(len(K)) + K/eta, Y.ravel()), rtol=1e-8)

def test_no_nt_by_nt_matrix():
    "An ICM run with n = 30 tasks and T = 300 stays far below the 0.65 GB of one nt x nt matrix."
    import tracemalloc
    rng = np.random.default_rng(0); R = rng.normal(size=(30, 30))
    alg = MTKB(ICM(Matern(2.5, .2), R@R.T), Finite(np.linspace(0, 1, 200)[:, None]), rng=0)
    tracemalloc.start()
    alg.run(lambda x, r: r.normal(size=30), 300)
    peak = tracemalloc.get_traced_memory()[1]; tracemalloc.stop()
    assert peak < .25*(30*300)**2*8

def test_step_cost_does_not_grow_with_t():
    "Arms repeat: after T >> N the engine holds at most 2N + 32 rows a kernel."
    P = np.random.default_rng(0).random((40, 2))
    p = mt_posterior(ICM(Matern(1.5, .3), np.diag([2., 1.])), .1, P)
    for t in range(1500): p.update(P[t % 40], [0., 1.])
    assert p._arms._rows <= 2*40 + 32 and p.t == 1500

def test_killed_compare_resumes_with_the_same_numbers(tmp_path):
    "SIGKILL in mid-comparison, made again: the table of the unbroken one."
    args = ['sine', '--T', '100', '--trials', '4', '--workers', '2', '--algos', 'MT-KB,IT-KB,random']
    code = [str(Path(sys.executable).with_name('mtbo_compare'))]
    def run(out): return subprocess.run([*code, *args, '--out', str(out)], check=True, capture_output=True, text=True)
    run(tmp_path/'whole')
    p = subprocess.Popen([*code, *args, '--out', str(tmp_path/'killed')], start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    runs, deadline = tmp_path/'killed'/'runs', time.time() + 60
    while len(list(runs.glob('*.npz'))) < 3 and time.time() < deadline: time.sleep(.02)
    os.killpg(p.pid, signal.SIGKILL); p.wait()
    assert 3 <= len(list(runs.glob('*.npz'))) and not (tmp_path/'killed'/'table.txt').exists()
    run(tmp_path/'killed')
    strip = lambda d: [line.split()[:7] for line in (d/'table.txt').read_text().splitlines()[2:]]      # the regrets, not the milliseconds
    assert strip(tmp_path/'whole') == strip(tmp_path/'killed')
