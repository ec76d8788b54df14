"The command for Figures 1-3: goes on where it was, refuses what it must, loses nothing; verdicts from numbers that are known."
import csv, json, sys, types

import numpy as np
import pytest

from mtbo_nb.lab import figures
from mtbo_nb.lab.figures import ConstantRadius, lower, mtbo_figures, panels, play, score, verdict, with_tuned
from mtbo_nb.lab.problems import perturbed_sine


def test_command_goes_on_and_refuses(tmp_path, capsys):
    run = lambda which, **kw: mtbo_figures(which, **{**dict(trials=2, T=5, workers=1, out=str(tmp_path)), **kw})
    run('1b,3'); said = json.loads((tmp_path/'figures.json').read_text())
    assert list(said) == ['1b', '3a', '3b', '3c'] and (tmp_path/'fig3.png').exists() and 'the paper' in capsys.readouterr().out
    rows = {(r['panel'], r['algorithm']): r for r in csv.DictReader(open(tmp_path/'figures.csv'))}
    assert {a for k, a in rows if k == '1b'} == {k for k in figures.ENTRIES if not k.startswith('constant')} | {'tuned'}
    before = {p: p.stat().st_mtime_ns for p in (tmp_path/'runs').glob('*/*.npz')}
    for bad, says in ((dict(T=4), 'T must be at least the 5'), (dict(seed=1), 'seed is 0 there'), (dict(trials=0), 'trials'), (dict(data=str(tmp_path/'no')), 'no file')):
        with pytest.raises(SystemExit, match=says): run('1b', **bad)
    with pytest.raises(SystemExit, match='which must be'): run('4')
    (tmp_path/'x').write_text('moteid,temperature\n1,2\n')
    with pytest.raises(SystemExit, match='are not such'): run('1f', data=str(tmp_path/'x'))
    assert {p: p.stat().st_mtime_ns for p in (tmp_path/'runs').glob('*/*.npz')} == before            # nothing lost, nothing touched
    run('1b', T=7)
    assert json.loads((tmp_path/'figures.json').read_text())['1b'][0] == panels()['1b'].claim


def test_a_resumed_constant_radius_keeps_its_constant(tmp_path):
    p = perturbed_sine()
    a = ConstantRadius.on(p, constant=.3, rng=5).run(p.observe, 12, save=tmp_path/'a.npz')
    b = ConstantRadius.load(tmp_path/'a.npz').run(p.observe, 25)
    np.testing.assert_array_equal(b.history.X, a.run(p.observe, 25).history.X); assert b.constant == .3


def test_tuned_is_the_best_constant_and_scores(tmp_path):
    res = play(['1d'], T=15, trials=2, folder=tmp_path)['1d']
    for metric in ('cumulative', 'bayes'):
        best, c = with_tuned(res, metric); s = score(res, metric)
        assert score(best, metric)['tuned'].mean() == min(v.mean() for k, v in s.items() if k.startswith('constant')) and best.runs['tuned'] is res.runs[f'constant {c:g}']
    np.testing.assert_allclose(score(res, 'bayes')['MOBO'], res.bayes['MOBO'].mean(1)); np.testing.assert_array_equal(score(res)['MOBO'], res.cumulative['MOBO'][:, -1])


@pytest.mark.parametrize('it, bkb, word', [(.5, .6, 'agrees'), (.5, .1, 'in part'), (.1, .1, 'does not agree')])
def test_verdicts(it, bkb, word):
    names = {'MT-KB': .3, 'MT-BKB': .4, 'IT-KB': it, 'IT-BKB': bkb, 'IT-KB-thm2': .4, 'SharpMT-KB': .1, 'MOBO': .1, 'random': 1., 'tuned': .05}
    made = types.SimpleNamespace(cumulative={k: np.full((4, 3), v) + np.arange(4)[:, None]*.01 + (k == 'IT-KB')*1e-4*np.arange(4)[:, None] for k, v in names.items()})
    got, text = verdict(panels()['1b'], made)
    assert got == word and 'IT-KB' in text and '√n' in text
    assert lower([1, 2, 3, 4.], [0, 4, 1, 6.]) == 0


def test_additive_hook(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, 'mtbo_nb.lab.additive', None)
    with pytest.raises(SystemExit, match='additive figures are not part'): mtbo_figures('additive')
    got = {}
    def figures_additive(out, trials=3, seed=1): got.update(out=out, trials=trials, seed=seed)
    monkeypatch.setitem(sys.modules, 'mtbo_nb.lab.additive', types.SimpleNamespace(figures_additive=figures_additive))
    mtbo_figures('additive', out='here', trials=4)
    assert got == dict(out='here', trials=4, seed=0)
    assert mtbo_figures('additive', out='there') is None and got == dict(out='there', trials=3, seed=0)      # its own default
