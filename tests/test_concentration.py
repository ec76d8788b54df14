"""Confidence sets, Lemma 6 and the regret ladder where their pages do not look: odd kernels, odd sizes, false assumptions."""
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mtbo_nb.core.domains import Finite
from mtbo_nb.core.kernels import SE, Matern, White
from mtbo_nb.lab.coverage import Store, radius_entry, radius_study
from mtbo_nb.lab.problems import Problem, perturbed_sine
from mtbo_nb.multitask.concentration import (ALPHAS, SETS, coverage, data_radius, dual_radius, mixture_radius, noise_radius,
                                             theorem_radius)
from mtbo_nb.multitask.mtinfogain import dominating_kernel, gamma_sos_bound, sos_terms, width_bound, width_sum
from mtbo_nb.multitask.mtkb import MTKB
from mtbo_nb.multitask.mtkernels import ICM, Diagonal, RKHSFunction, SumSeparable, TaskSimilarity
from mtbo_nb.multitask.mtposterior import mt_posterior
from mtbo_nb.multitask.regret import regret_bound, regret_ladder

P = np.linspace(0, 1, 21)[:, None]
KERNELS = {'one task': ICM(SE(.2), [[1.]]), 'rank one': ICM(SE(.2), np.ones((3, 3))), 'a zero task': ICM(SE(.2), np.diag([1., 0.])),
           'white and smooth': Diagonal([White(1.), SE(.1)]), 'similar': TaskSimilarity(Matern(1.5, .3), .2, 4),
           'coupled sum': SumSeparable([(SE(.2), np.diag([1., 0.])), (Matern(.5, .3), np.ones((2, 2)))])}

def problem(G, P, seed=0):
    rng = np.random.default_rng(seed); m = min(3, len(P))
    f = RKHSFunction(G, P[:m], rng.normal(size=(m, G.n)))
    return Problem('test', f, Finite(P), G, .1, f.norm, f(P).min(0) - .1)

ORDER = [('trace', 'norm'), ('norm', 'direction'), ('direction', 'Lemma 3'), ('mixture', 'dual'), ('dual', 'Lemma M'),
         ('hedged', 'Lemma M hedged')]

# ---- the events imply the bands, run by run

@pytest.mark.parametrize('points', [P, P[:1], np.repeat(P[:5], 2, 0)], ids=['net', 'one arm', 'copies of arms'])
@pytest.mark.parametrize('name', KERNELS)
def test_a_band_fails_only_if_its_event_does(name, points):
    c = coverage(problem(KERNELS[name], points), T=12, runs=3, noise='rademacher')
    for a, b in ORDER: assert (c.level[a] <= c.level[b] + 1e-6).all(), (a, b)
    for s in SETS: assert (c.ratio[s] <= 1 + 1e-9).all(), s
    for a, b in (('trace', 'norm'), ('norm', 'direction'), ('direction', 'mixture'), ('mixture', 'dual')):
        assert (c.ratio[a] <= c.ratio[b]*(1 + 1e-6)).all(), (a, b)

@pytest.mark.parametrize('kw', [dict(sigma=1e-6), dict(eta=1e-6), dict(eta=1e6), dict(T=1, runs=1), dict(alphas=())])
def test_extreme_settings(kw):
    c = coverage(problem(KERNELS['similar'], P), **{'T': 8, 'runs': 2, **kw})
    assert all(np.isfinite(v).all() for v in c.ratio.values())
    for a, b in ORDER: assert (c.level[a] <= c.level[b] + 1e-4*(1 + np.abs(c.level[b]))).all(), (a, b)

def test_runs_are_independent_of_each_other():
    prob = problem(KERNELS['similar'], P)
    some, all_ = coverage(prob, T=6, runs=[1, 3]), coverage(prob, T=6, runs=4)
    for s in SETS: np.testing.assert_array_equal(some.ratio[s], all_.ratio[s][[1, 3]])

# ---- the radii

@settings(max_examples=200, deadline=None)
@given(logdet=st.floats(0, 50), b=st.floats(0, 50), sigma=st.floats(1e-3, 10), eta=st.floats(1e-3, 10), delta=st.floats(1e-6, .9))
def test_mixture_lies_between_b_and_theorem(logdet, b, sigma, eta, delta):
    m, t = mixture_radius(logdet, b, sigma, eta, delta), theorem_radius(logdet, b, sigma, eta, delta)
    assert b <= m*(1 + 1e-12) and m <= t*(1 + 1e-12) and t <= np.sqrt(2)*m*(1 + 1e-12)
    np.testing.assert_allclose(noise_radius(logdet, sigma, delta)**2, sigma**2*(logdet + 2*np.log(1/delta)))

@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10**6), sigma=st.floats(.01, 3.), eta=st.floats(.01, 10.))
def test_hedging_costs_at_most_log_j(seed, sigma, eta):
    rng = np.random.default_rng(seed); X, Y = rng.random((9, 1)), rng.normal(size=(9, 2))
    posts = [mt_posterior(ICM(SE(.3), np.array([[1., .5], [.5, 2.]])), a*eta).update(X, Y) for a in (1., *ALPHAS)]
    R2 = data_radius([p.quad for p in posts], [p.logdet for p in posts], sigma, .1)
    one = np.array([data_radius(p.quad, p.logdet, sigma, .1) for p in posts])
    assert one.min() - 1e-9 <= R2 <= one.min() + 2*sigma**2*np.log(len(posts)) + 1e-9
    assert dual_radius(posts[0].quad, eta, R2, 1.) <= mixture_radius(posts[0].logdet, 1., sigma, eta, .1/len(posts))*(1 + 1e-9)

# ---- Lemma 6 and the ladder

@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), M=st.integers(1, 3), n=st.integers(1, 4), eta=st.sampled_from([.01, .1, 1., 10.]), scale=st.sampled_from([.01, 1., 10.]))
def test_lemma_6_on_random_sums(seed, M, n, eta, scale):
    rng = np.random.default_rng(seed)
    A = [rng.normal(size=(rng.integers(1, n + 1), n)) for _ in range(M)]
    G = SumSeparable([(k, scale*a.T@a) for k, a in zip((SE(.1), Matern(1.5, .3), SE(.5)), A)])
    X = P[rng.integers(0, len(P), 15)]
    gain = np.linalg.slogdet(np.eye(15*n) + G(X)/eta)[1]
    assert gain <= gamma_sos_bound(G, P, 15, eta)*(1 + 1e-9)
    kbar, W = dominating_kernel(G), width_sum(G, X, eta)
    assert (np.diff(W) >= 0).all() and W[-1] <= eta*np.linalg.slogdet(np.eye(15) + kbar(X)/eta)[1]*(1 + 1e-9) <= width_bound(G, P, 15, eta)*(1 + 1e-9)

def test_equal_kernels_are_one_term():
    assert len(sos_terms(SumSeparable([(SE(.1), np.eye(2)), (SE(.1), np.ones((2, 2)))]))) == 1
    np.testing.assert_allclose(sos_terms(SumSeparable([(SE(.1), np.eye(2)), (SE(.1), np.ones((2, 2)))]))[0][1], np.eye(2) + 1)

@pytest.mark.parametrize('name', KERNELS)
def test_ladder_on_odd_kernels(name):
    prob = problem(KERNELS[name], P)
    d = regret_ladder(MTKB.on(prob, rng=0).run(prob.observe, 10), prob)
    for a, b in (('regret', 'optimism'), ('optimism', 'widths'), ('widths', 'largest'), ('largest', 'Cauchy–Schwarz'),
                 ('Cauchy–Schwarz', 'one step, k̄'), ('Cauchy–Schwarz', 'one step'), ('one step', 'Theorem 2'), ('Theorem 2', 'Theorem 2, γ')):
        assert (d[a] <= d[b]*(1 + 1e-9)).all(), (a, b)
    assert regret_bound(1, 1., 1., 1., 1., 1e-9, True) < regret_bound(1, 1., 1., 1., 1., 1e-9)

# ---- the command

def test_radius_study_resumes_and_extends(tmp_path):
    whole = radius_study(['sine'], trials=2, T=4)
    radius_study(['sine'], trials=1, T=4, store=Store(tmp_path/'runs.json'))
    store = Store(tmp_path/'runs.json'); held = len(store.data)
    assert radius_study(['sine'], trials=2, T=4, store=store) == whole and len(store.data) == 2*held

def test_constant_radius_is_no_confidence_set():
    prob = perturbed_sine(); alg = radius_entry(prob, radius=.01); alg.tell(prob.domain.points[:2], prob.f(prob.domain.points[:2]))
    (p, beta), = alg.bands
    assert (np.abs(prob.values - p.mean()) > beta*np.sqrt(p.var())).any()

def test_command_line(tmp_path):
    script = tmp_path/'script.py'                                 # what pip writes for a console script
    script.write_text("from mtbo_nb.lab.coverage import mtbo_coverage\nif __name__ == '__main__': mtbo_coverage()\n")
    def run(*args): return subprocess.run([sys.executable, str(script), *args], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    r = run('--study', 'coverage', '--names', 'sine', '--runs', '3', '--T', '3', '--out', 'here')
    assert r.returncode == 0, r.stderr
    assert {p.name for p in (tmp_path/'here').iterdir()} == {'coverage.csv', 'coverage.png', 'runs.json'} and 'sine, gaussian: 3 runs' in r.stdout
    bad = run('--names', 'sinus'); assert bad.returncode == 1 and 'names must be among' in bad.stderr and 'Traceback' not in bad.stderr
