"The map of where sharing helps: the problems are what they claim, the study is the runs it says, in any process, and goes on."
from concurrent.futures import ThreadPoolExecutor
from functools import partial
import json

import numpy as np
import pytest

from mtbo_nb.lab.coverage import Store
from mtbo_nb.lab.experiments import compare
from mtbo_nb.lab.sharing import PLAYERS, cells, mtbo_sharing, ratio_maps, shared_problem, sharing_study


def test_problem_has_the_similarity_the_rank_and_the_size_it_claims():
    for w in (0., .1, 1.):
        p = shared_problem(3, 'similarity', w, n=4)
        B = w*np.eye(4) + (1 - w)/4
        np.testing.assert_allclose(p.kernel.diag(p.domain.points[:1])[0], B); np.testing.assert_allclose((p.values**2).mean(), 1)
    for r in (1, 3):
        p = shared_problem(3, 'rank', r, n=5)
        assert (np.linalg.eigvalsh(p.kernel.B) > 1e-9).sum() == r and np.isclose(np.trace(p.kernel.B), 5) and np.linalg.matrix_rank(p.values, tol=1e-8) == r
    for bad, says in ((dict(family='x'), 'family'), (dict(family='rank', level=6), 'rank'), (dict(level=1.5), 'omega'), (dict(n=0), 'n must')):
        with pytest.raises(ValueError, match=says): shared_problem(**bad)


def test_study_is_the_runs_it_says_whoever_computes_them(tmp_path):
    rows = sharing_study(T=10, trials=2, quick=True, seed=4)
    with ThreadPoolExecutor(2) as ex: assert sharing_study(T=10, trials=2, quick=True, seed=4, executor=ex, store=Store(tmp_path/'s.json')) == rows
    f, l, s, n = cells(True)[1]
    res = compare(partial(shared_problem, family=f, level=l, noise=s, n=n), ['MT-KB-dir', 'IT-KB-thm2'], T=10, trials=2, rng=4)
    for a in res.runs:
        row = next(r for r in rows if r['algorithm'] == a and r['noise'] == s)
        np.testing.assert_allclose(np.array(row['trials'].split(), float), res.cumulative[a][:, -1], rtol=1e-3)
    kept = json.loads((tmp_path/'s.json').read_text()); assert len(kept) == 2*len(cells(True))
    kept.popitem(); (tmp_path/'s.json').write_text(json.dumps(kept))
    assert sharing_study(T=10, trials=2, quick=True, seed=4, store=Store(tmp_path/'s.json')) == rows


def test_ratios_are_paired():
    base = np.array([1., 5., 20.])
    rows = [dict(family='rank', level=1, noise=.1, n=8, algorithm=a, trials=' '.join(map(str, base*(.5 if a == 'MT-KB' else 1) + (a == 'MT-KB-dir')*np.array([9, -4, 1])))) for a in PLAYERS]
    maps = ratio_maps(rows)
    _, _, Z, clear = maps['rank', 8, ('MT-KB-dir', 'IT-KB-thm2-dir')]; assert not clear.any()
    rows = [dict(r, trials=' '.join(map(str, base - (r['algorithm'] == 'MT-KB')*np.array([.5, .55, .6])))) for r in rows]      # a constant gain under a large spread
    _, _, Z, clear = ratio_maps(rows)['rank', 8, ('MT-KB', 'IT-KB-thm2')]
    assert clear.all(); np.testing.assert_allclose(Z, np.log2((26 - 1.65)/26))


def test_command_refuses(tmp_path):
    with pytest.raises(SystemExit, match='trials'): mtbo_sharing(trials=0, workers=1, out=str(tmp_path))
    (tmp_path/'jobs.json').write_text('no json')
    with pytest.raises(SystemExit, match='written by an earlier call'): mtbo_sharing(workers=1, out=str(tmp_path))
