"Odd sizes, odd input, many dimensions and broken runs, for the additive part."
import os, signal, subprocess, sys, time
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from mtbo_nb.core.domains import Box, Direct, LBFGSB
from mtbo_nb.core.kernels import RQ, SE, Matern
from mtbo_nb.additive.addgpucb import AddGPUCB, BatchDirect, beta_practical, beta_theorem, maximise_groups
from mtbo_nb.additive.baselines import GPEI, GPUCB, REMBO, DirectSearch, UniformSearch, log_h
from mtbo_nb.additive.decomposition import best_groups, group_sizes, n_decompositions, pairs_found, random_groups, swap_groups
from mtbo_nb.additive.gp import Additive, AdditiveGP, AllGroups, MarginalLikelihood, elementary, fit_additive, newton_girard
from mtbo_nb.lab.additive import additive_bumps, additive_methods, additive_study, additive_trial, lrg, read_lrg, regrets

quick = dict(n_init=4, n_cyc=6, restarts=1)
algos = {'add': lambda B, **k: AddGPUCB(B, d=2, tries=2, **quick, **k), 'known': lambda B, **k: AddGPUCB(B, groups=[[i] for i in range(B.d)], **quick, **k), 'joint': lambda B, **k: AddGPUCB(B, d=2, tries=2, bonus='joint', **quick, **k),
         'random': lambda B, **k: AddGPUCB(B, d=2, decomposition='random', **quick, **k), 'swap': lambda B, **k: AddGPUCB(B, d=2, tries=2, decomposition='swap', **quick, **k),
         'per group': lambda B, **k: AddGPUCB(B, d=2, tries=2, shared=False, polish=True, **quick, **k), 'lbfgsb': lambda B, **k: AddGPUCB(B, d=2, tries=2, maximiser=LBFGSB(2, 32, 10), **quick, **k), 'theorem': lambda B, **k: AddGPUCB(B, d=2, tries=2, beta='theorem', **quick, **k),
         'ucb': lambda B, **k: GPUCB(B, **quick, **k), 'ei': lambda B, **k: GPEI(B, **quick, **k), 'rembo': lambda B, **k: REMBO(B, min(2, B.d), **quick, **k), 'rand': UniformSearch, 'direct': DirectSearch}
wavy = lambda x, rng: [np.sin(5*x).sum() + .05*rng.normal()]

@pytest.mark.parametrize('algo', algos)
def test_save_and_continue(algo, tmp_path):
    "A run broken anywhere and loaded is the unbroken run; an ask is repeated."
    B = Box([-1., 0, 2, 0, 0], [1., 1, 5, 1, 1])
    whole = algos[algo](B, rng=5).run(wavy, 15)
    for cut in (0, 3, 4, 7, 10):
        part = algos[algo](B, rng=5).run(wavy, cut); x = part.ask(); np.testing.assert_array_equal(x, part.ask())
        part.save(tmp_path/'run.npz'); again = type(part).load(tmp_path/'run.npz'); np.testing.assert_array_equal(again.ask(), x); again.run(wavy, 15)
        for c in ('X', 'Y', 'beta', 'calls'): np.testing.assert_array_equal(getattr(again.history, c), getattr(whole.history, c))

@pytest.mark.parametrize('algo', algos)
@pytest.mark.parametrize('value', [0., 3., 1e8, -1e-9])
def test_odd_values(algo, value):
    "Constant, huge and tiny outputs, in two coordinates: nothing special happens."
    B = Box([0., -1e-3], [1e3, 1e-3])
    a = algos[algo](B, rng=0)
    for x in (lambda x: value, lambda x: value*(1 + 1e-3*x[0]/1e3)): a.run(x, a.t + 7)
    assert a.t == 14 and B.contains(a.history.X).all() and np.isfinite(a.best()[1]) and len(repr(a)) < 200

@pytest.mark.parametrize('algo', algos)
def test_refused_input_changes_nothing(algo):
    B = Box.unit(3)
    a = algos[algo](B, rng=0).run(wavy, 6); x = a.ask(); before = a.history.X
    for bad, word in (((x, np.nan), 'x = '), ((x, np.inf), 'on_nan'), ((x, [1., 2.]), 'y must have shape'), ((x + 3, 1.), 'x must lie'), (([[.1, .2]], 1.), 'x must have 3'), ((np.stack([x, x]), [1., np.nan]), 'on_nan')):
        with pytest.raises(ValueError, match=word): a.tell(*bad)
        np.testing.assert_array_equal(a.ask(), x); np.testing.assert_array_equal(a.history.X, before)
    a.tell(x, 1.); assert a.t == 7

@pytest.mark.parametrize('algo', algos)
def test_skipped_failures(algo, tmp_path):
    "Failed experiments are recorded, kept out of the model, and do not stop the search or the saving."
    hole = lambda x, rng: [np.nan if x[0] < .45 else np.sin(5*x).sum()]
    whole = algos[algo](Box.unit(3), on_nan='skip', rng=1).run(hole, 24)
    bad = np.isnan(whole.history.Y[:, 0])
    assert 0 < bad.sum() < 24 and (whole.history.X[bad, 0] < .45).all() and (whole.history.X[~bad, 0] >= .45).all() and len(whole._y) == (~bad).sum()
    if whole.gp is not None and whole.gp.t: assert whole.gp.t == (~bad).sum() and np.isfinite(whole.gp.y).all()
    algos[algo](Box.unit(3), on_nan='skip', rng=1).run(hole, 11).save(tmp_path/'r.npz')
    again = UniformSearch.__mro__[1].load(tmp_path/'r.npz').run(hole, 24)
    np.testing.assert_array_equal(again.history.X, whole.history.X); np.testing.assert_array_equal(again.history.Y, whole.history.Y)

def test_any_point_may_be_told():
    "Told points, several at once, before and after the start, also ones not asked: all are in the model."
    a = algos['add'](Box.unit(4), rng=0); P = np.random.default_rng(0).random((9, 4))
    a.tell(P[:6], np.arange(6.)); a.ask(); a.tell(P[6], 6.); a.ask(); a.tell(P[7:], [7., 8.]); x = a.ask(); a.tell(x, 9.)
    assert a.t == 10 == a.gp.t and np.isnan(a.history.beta[:9]).all() and np.isfinite(a.history.beta[9]); a.ask()
    np.testing.assert_allclose(a.gp.mean(a._U), AdditiveGP(a.gp.kernel, a.gp.noise, a.gp.prior_mean).update(a._U, a._y).mean(a._U), atol=1e-7)

def test_repeated_queries_move():
    "A function that is best where DIRECT looks first: the queries still differ."
    a = AddGPUCB(Box.unit(2), d=1, k=SE(.5), noise=.01, mean=0., learn=False, n_init=2, beta=0., rng=0).run(lambda x: -np.abs(x - .5).sum(), 15)
    U = a.history.X; D = np.abs(U[:, None] - U).max(-1) + np.eye(15); assert D.min() > 1e-10*.5 and np.abs(U[8:] - .5).max() < .05

@pytest.mark.parametrize('D,d,M', [(40, 35, 2), (96, 5, 20), (120, 55, 3), (120, 1, 120)])
def test_many_dimensions(D, d, M):
    "Up to 120 coordinates, with the paper's budget and an honest count."
    a = AddGPUCB(Box(-np.ones(D), np.ones(D)), d=d, M=M, tries=1, restarts=0, n_init=5, rng=0).run(lambda x: -np.sum(x**2), 8)
    want = M*(int(.9*min(5000, 100*D))//M)
    assert (a.history.calls[5:] == want).all() and len(a.gp.kernel.groups) == M

def test_speed():
    "At D = 40, d = 5, t = 500: a maximisation in seconds (measured 0.1), no kernel matrix rebuilt in between."
    rng = np.random.default_rng(0); U = rng.random((500, 40))
    a = AddGPUCB(Box.unit(40), np.arange(40).reshape(8, 5).tolist(), k=.1*SE(.7), noise=.1, mean=0., learn=False, rng=0); a.tell(U, rng.normal(size=500)); a._refresh()
    seen, predict = [], a.gp.predict
    a.gp.predict = lambda W: (seen.append(sum(map(len, W.values()))), predict(W))[1]
    t0 = time.perf_counter(); _, calls = a._search(); dt = time.perf_counter() - t0
    assert calls == 3600 == sum(seen) and len(seen) < 600 and dt < 5

@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6), st.integers(1, 300), st.integers(0, 10**6))
def test_direct_counts(d, budget, seed):
    "Never above the budget, no point twice, the best is the best of what was seen, all inside."
    rng = np.random.default_rng(seed); w, c = rng.normal(size=d), rng.random(d); seen = []
    values = []
    def f(X): seen.append(X); values.append(np.cos(9*(X - c)@w) - ((X - c)**2).sum(1)); return values[-1]
    m = BatchDirect(budget)(f, Box.unit(d)); P, v = np.vstack(seen), np.concatenate(values)
    assert m.calls == len(P) == budget and len(np.unique(P.round(14), axis=0)) == budget and (P >= 0).all() and (P <= 1).all() and m.value == v.max() and (m.x == P[v.argmax()]).all()

def test_direct_converges():
    "Where SciPy's DIRECT finds the maximum, so does this one."
    for d, budget in ((1, 100), (2, 600), (3, 3000)):
        c = np.linspace(.2, .8, d); f = lambda X: -np.sum((X - c)**2*5 + .3*(1 - np.cos(12*(X - c))), 1)
        assert BatchDirect(budget)(f, Box.unit(d)).value > -1e-3 and Direct(budget)(f, Box.unit(d)).value > -1e-3

def test_in_step_is_one_by_one():
    "Maximising all groups in step gives what maximising each alone gives."
    f = [lambda X: -((X - .3)**2).sum(1), lambda X: np.sin(9*X).sum(1), lambda X: X[:, 0]*X[:, 2] - X[:, 1]]
    together = maximise_groups(lambda U: {j: f[j](u) for j, u in U.items()}, {0: 2, 1: 1, 2: 3}, 77)
    for j, d in ((0, 2), (1, 1), (2, 3)):
        alone = maximise_groups(lambda U: {0: f[j](U[0])}, {0: d}, 77)[0]
        np.testing.assert_array_equal(together[j].x, alone.x); assert together[j].calls == alone.calls == 77

@settings(max_examples=25, deadline=None)
@given(st.integers(2, 12), st.integers(1, 4), st.integers(0, 10**6))
def test_groups_and_components(t, M, seed):
    "Random decompositions: component means add up, deviations bound, and the order of groups does not matter."
    rng = np.random.default_rng(seed); D = M + int(rng.integers(0, 4)); d = -(-D//M)
    g = random_groups(D, d, M, rng); assert sorted(i for h in g for i in h) == list(range(D)) and [len(h) for h in g] == group_sizes(D, d, M)
    k = [Matern(1.5, .4), 2.*SE(.5), RQ(.3, 1.), 1.*SE(.2)][:M]
    X, y, Z = rng.random((t, D)), rng.normal(size=t), rng.random((4, D))
    gp, turned = AdditiveGP(Additive(k, g), .1, .5).update(X, y), AdditiveGP(Additive(k[::-1], g[::-1]), .1, .5).update(X, y)
    c = [gp.component(j, Z[:, list(h)]) for j, h in enumerate(g)]
    np.testing.assert_allclose(.5 + sum(m for m, _ in c), gp.mean(Z), atol=1e-8)
    assert (np.sqrt(gp.var(Z)) <= sum(np.sqrt(v) for _, v in c) + 1e-8).all()
    Delta = gp.kernel(X) + .01*np.eye(t); C = gp.kernel.parts[0](Z, X)
    np.testing.assert_allclose(c[0][1], gp.kernel.parts[0].diag(Z) - np.einsum('ij,ji->i', C, np.linalg.solve(Delta, C.T)), atol=1e-8)
    np.testing.assert_allclose(turned.component(M - 1, Z[:, list(g[0])]), c[0], atol=1e-8); np.testing.assert_allclose(turned.lml, gp.lml)

def test_repeated_points_and_small_noise():
    "Copies of a point with hardly any noise: finite, non-negative, and right."
    X = np.repeat(np.random.default_rng(0).random((3, 2)), 20, 0); gp = AdditiveGP(Additive(SE(.5), [[0], [1]]), 1e-6).update(X, np.repeat([1., 2, 3], 20))
    assert np.isfinite(gp.lml) and (gp.var(X) >= 0).all() and gp.var(X).max() < 1e-4; np.testing.assert_allclose(gp.mean(X[::20]), [1, 2, 3], atol=1e-2)

def test_elementary():
    z = np.random.default_rng(0).random((9, 3))
    np.testing.assert_allclose(elementary(z, 9), newton_girard(z, 9)); np.testing.assert_allclose(elementary(z, 9).sum(0), np.prod(1 + z, 0))
    np.testing.assert_allclose(AllGroups(SE(.3), 2)(z, z), AllGroups(SE(.3), 2)(z[:, ::-1], z[:, ::-1]))

def test_counts_of_decompositions():
    "Against the recursion: the group of the first coordinate, then the rest."
    from math import comb
    def rec(n, d): return 1 if n == 0 else comb(n - 1, d - 1)*rec(n - d, d)
    for d, M in ((1, 5), (2, 3), (3, 3), (5, 8), (2, 20)): assert n_decompositions(d*M, d, M) == rec(d*M, d)

def test_search_needs_no_luck():
    "On data that determine the groups, swaps find them from any start and never go down."
    rng = np.random.default_rng(4); true = [[0, 3], [1, 4], [2, 5]]; X = rng.random((120, 6)); y = sum(np.sin(4*X[:, a])*np.cos(5*X[:, b]) for a, b in true) + .01*rng.normal(size=120)
    for s in range(3):
        start = fit_additive(Additive(1.*SE(.4), random_groups(6, 2, 3, s)), X, y, restarts=1, rng=s); end = swap_groups(start, X, y, rng=s)
        assert end.lml >= start.lml and pairs_found(end.kernel.groups, true) == 1
    assert best_groups(X, y, 2, 3, tries=50, rng=0).calls > 0 and pairs_found(best_groups(X, y, 2, 3, tries=50, rng=0).kernel.groups, true) == 1     # there are 15 in all

def test_betas():
    assert beta_practical(3, 2) == pytest.approx(.4*np.log(6)) and beta_theorem(2, 3, 4, 12, .1) == pytest.approx(2*np.log(4*np.pi**2*4/.2) + 6*np.log(96))
    a = AddGPUCB(Box.unit(12), d=3, beta='theorem', delta=.1, rng=0); assert a.beta_t(2) == pytest.approx(beta_theorem(2, 3, 4, 12, .1))
    assert GPUCB(Box.unit(10)).beta_t(5) == pytest.approx(2*np.log(10)) and AddGPUCB(Box.unit(10), d=2).beta_t(5) == pytest.approx(.4*np.log(10)) and REMBO(Box.unit(10), 3).beta_t(5) == pytest.approx(.6*np.log(10))

@given(st.floats(-1e6, 1e3))
def test_log_ei_is_monotone_and_finite(z):
    v, g = log_h(np.array([z, z + 1e-3 + abs(z)*1e-6])); assert np.isfinite(v).all() and v[1] > v[0] and (g > 0).all()

def test_log_ei_far_out():
    "Mills' ratio: h(z) = φ(z) (1/z² - 3/z⁴ + 15/z⁶ - ...) between two partial sums, and no jump where the formulas meet."
    for z in (-24.9, -25.1, -40., -300.):
        low, high = (-.5*z*z - .5*np.log(2*np.pi) + np.log(s) for s in (z**-2 - 3*z**-4, z**-2 - 3*z**-4 + 15*z**-6)); assert low < log_h([z])[0][0] < high + 1e-9
    for seam in (-25., -1.): a, b = log_h([seam - 1e-9, seam + 1e-9])[0]; assert abs(a - b) < 1e-6

def test_direct_walks_around_holes():
    "A failed query counts as the worst: the search still closes in on the maximum."
    a = DirectSearch(Box.unit(3), on_nan='skip').run(lambda x: np.nan if x[0] < .45 or x[2] > .9 else -np.sum((x - .7)**2), 250)
    assert np.isnan(a.history.Y).sum() > 5 and a.best()[1] > -1e-3

def test_problems():
    p = additive_bumps(24, 6, 4, rng=0); q = additive_bumps(24, 6, 4, rng=0); assert p.groups == q.groups and p.effective == 24
    names = list(additive_methods(p)); assert names[0] == 'Add-*' and {'GP-UCB', 'GP-EI', 'REMBO', 'RAND', 'DIRECT'} < set(names)
    budgets = {n: m(0)._budget for n, m in additive_methods(p).items() if n.startswith(('Add', 'GP'))}; assert budgets['GP-UCB'] == 2400 and all(v == 2160 for n, v in budgets.items() if n.startswith('Add') and not n.startswith('Add-24'))
    assert lrg(rng=1).domain.d == 20

def test_read_lrg_refuses(tmp_path):
    with pytest.raises(ValueError, match='kbands'): read_lrg(tmp_path)
    np.savetxt(tmp_path/'a_kbands.txt', np.ones(5)); np.savetxt(tmp_path/'a_measurements.txt', np.ones((3, 6))); np.savetxt(tmp_path/'a_windows.txt', np.ones((3, 4)))
    with pytest.raises(ValueError, match='window'): read_lrg(tmp_path)
    (tmp_path/'a_windows.txt').write_text('1 2 x\n')
    with pytest.raises(ValueError, match='windows.txt must be a table'): read_lrg(tmp_path)

def test_methods_share_the_noise_and_the_problem():
    "The groups and the first points depend on the trial only."
    a, b = additive_trial('10-3-3', 'GP-UCB', 3, 5), additive_trial('10-3-3', 'RAND', 3, 5); np.testing.assert_array_equal(a['f'], b['f'])
    assert (additive_trial('10-3-3', 'RAND', 4, 5)['f'] != b['f']).all()

def test_killed_study_goes_on(tmp_path):
    "A study killed by force in mid-trial, started again, is the study that was never killed."
    args = f"'10-3-3', 40, 1, ['Add-5/2', 'DIRECT'], out={str(tmp_path)!r}"
    code = f"import time\nfrom mtbo_nb.lab import additive as A\nslow = A.ScalarProblem.observe\nA.ScalarProblem.observe = lambda self, x, rng: (time.sleep(.05), slow(self, x, rng))[1]\nA.additive_study({args})"
    proc = subprocess.Popen([sys.executable, '-c', code], env={**os.environ, 'OPENBLAS_NUM_THREADS': '1'})
    end = time.time() + 60
    while not list((tmp_path/'10-3-3').glob('*.npz')) and time.time() < end: time.sleep(.05)
    time.sleep(.5); proc.send_signal(signal.SIGKILL); proc.wait()
    s, w = additive_study('10-3-3', 40, 1, ['Add-5/2', 'DIRECT'], out=tmp_path), additive_study('10-3-3', 40, 1, ['Add-5/2', 'DIRECT'])
    for m in s: np.testing.assert_array_equal(s[m]['f'], w[m]['f'])

def test_regrets():
    f = np.array([[1., np.nan, 3.]]); assert regrets(f)[0][0, -1] == 3
