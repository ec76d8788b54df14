"The Intel-lab loader on files of the published kind and on files that are not; the simulated lab; the sensors problem."
import gzip

import numpy as np
import pytest

from mtbo_nb.lab.datasets import LAB_LIMITS, LabReadings, intel_lab, mote_locations, sensors_problem, simulate_lab
from mtbo_nb.lab.experiments import compare

GOOD = [f'2004-03-{1 + i % 28:02d} {i % 24:02d}:{i % 60:02d}:16.{i:06d} {i + 2} {1 + i % 54} {18 + i % 7}.{i % 10} {35 + i % 9}.5 {100 + 3*(i % 11)} 2.{60 + i % 20}' for i in range(54*30)]


def put(path, lines, end='\n'):
    path.write_text(end.join(lines), encoding='utf-8'); return path


def by_hand(lines): # the slow way, nothing shared with the loader
    out = []
    for line in lines:
        f = line.split()
        if len(f) != 8: continue
        try: m, v = int(f[3]), [float(x) for x in f[4:]]
        except ValueError: continue
        if 1 <= m <= 54 and all(lo <= x <= hi for x, (lo, hi) in zip(v, LAB_LIMITS.values())): out.append((m, *v[:3]))
    return np.array(out)


@pytest.mark.parametrize('end', ['\n', '\r\n'])
def test_readings_equal_those_read_by_hand(tmp_path, end):
    bad = ['2004-03-31 03:38:15.757551 2 1 122.153 -3.91901 11.04 2.03397', '2004-02-28 00:59:16.02785 3 1 19.9884 37.0933 45.08', '', '2004-02-28',
           '2004-02-28 01:03:16.33393 11 6485 19.3 38.4 45.08 2.68', '2004-02-28 01:03:16 12 2 -38.4 38.4 45.08 2.68', '2004-03-01  01:03:16 12 2 21.5  38.4 45.08 2.68',
           '2004-03-01 01:03:16 12 2 nan 38.4 45.08 2.68', '2004-03-01 01:03:16 12 2 21.5 38.4 45.08 2.68 7', '2004-03-01 01:03:16 12 2.5 21.5 38.4 45.08 2.68']
    lines = [x for i, g in enumerate(GOOD) for x in ([bad[i//40 % len(bad)]] if i % 40 == 0 else []) + [g]]
    lab, want = intel_lab(put(tmp_path/'data.txt', lines, end), least=20), by_hand(lines)
    np.testing.assert_array_equal(lab.motes[lab.mote], want[:, 0]); np.testing.assert_allclose(lab.values, want[:, 1:])
    r = lab.report
    assert r['short'] == sum(len(x.split()) not in (0, 8) for x in lines)
    assert r['lines'] == len([x for x in lines if x]) and r['lines'] == len(lab.mote) + r['short'] + r['unreadable'] + r['of unknown motes'] + r['wild'] + r['of dead motes']
    assert min(r[k] for k in ('short', 'of unknown motes', 'wild')) > 0 and r['dead motes'] == []


def test_words_are_dropped_and_the_rest_of_the_block_kept(tmp_path):
    lab = intel_lab(put(tmp_path/'d', ['2004-03-01 01:03:16 12 2 hot 38.4 45.08 2.68', *GOOD]), least=20)
    assert lab.report['unreadable'] == 1 and len(lab.mote) == len(GOOD)


def test_dead_motes_are_dropped_and_named(tmp_path):
    lines = [g for g in GOOD if g.split()[3] not in ('5', '28')] + [g for g in GOOD if g.split()[3] == '28'][:3]
    lab = intel_lab(put(tmp_path/'d', lines), least=20)
    assert lab.report['dead motes'] == [5, 28] and lab.report['of dead motes'] == 3 and len(lab.motes) == 52 and lab.mote.max() == 51
    ids, xy = mote_locations()
    np.testing.assert_array_equal(lab.sites, xy[~np.isin(ids, [5, 28])])
    for i in (3, 40): np.testing.assert_allclose(lab.means()[i], np.mean([[float(v) for v in g.split()[4:7]] for g in lines if int(g.split()[3]) == lab.motes[i]], 0))


def test_blocks_are_joined(tmp_path):
    "More than two blocks of 16 MB, cut inside lines."
    lab = intel_lab(put(tmp_path/'d', GOOD*420 + ['2004-03-01 01:03:16 12 2 21.5 38.4 45.08 2.68']))
    assert (tmp_path/'d').stat().st_size > 2 << 24 and len(lab.mote) == 420*len(GOOD) + 1 and lab.report['short'] == lab.report['unreadable'] == 0
    np.testing.assert_allclose(lab.values[-1], [21.5, 38.4, 45.08])


@pytest.mark.parametrize('data, says', [(b'', 'is empty'), (b'\n\n', 'is empty'), (b'a,b\n1,2\n', 'are not such'), (bytes(range(256))*999, 'are not such'),
                                        ('\n'.join(' '.join(g.split()[1:]) for g in GOOD).encode(), 'are not such'),
                                        ('\n'.join(' '.join([*g.split()[:3], '99', *g.split()[4:]]) for g in GOOD).encode(), 'no moteid'),
                                        ('\n'.join(' '.join([*g.split()[:4], '122.1', *g.split()[5:]]) for g in GOOD).encode(), 'outside the limits')])
def test_files_that_are_not_what_they_claim(tmp_path, data, says):
    (tmp_path/'d').write_bytes(data)
    with pytest.raises(ValueError, match=says): intel_lab(tmp_path/'d')


def test_broken_gzip_missing_file_and_locations(tmp_path):
    with gzip.open(tmp_path/'d.gz', 'wb') as f: f.write('\n'.join(GOOD).encode())
    assert len(intel_lab(tmp_path/'d.gz', least=20).mote) == len(GOOD)
    whole = (tmp_path/'d.gz').read_bytes(); (tmp_path/'d.gz').write_bytes(whole[:len(whole)//2])
    with pytest.raises(ValueError, match='no complete gzip'): intel_lab(tmp_path/'d.gz')
    put(tmp_path/'plain.gz', GOOD)
    with pytest.raises(ValueError, match='no complete gzip'): intel_lab(tmp_path/'plain.gz')
    with pytest.raises(FileNotFoundError): intel_lab(tmp_path/'none')
    with pytest.raises(ValueError, match='limits must be for'): intel_lab(put(tmp_path/'d', GOOD), limits={'heat': (0, 1)})
    for lines, says in ((['1 2'], 'line 1'), (['moteid x y', '1 2 3', '1 3 4'], 'repeats mote 1'), ([], 'has none'), (['1 nan 2'], 'line 1')):
        with pytest.raises(ValueError, match=says): mote_locations(put(tmp_path/'locs', lines))


def test_sensors_problem_from_a_file_and_simulated(tmp_path):
    rng, (ids, xy) = np.random.default_rng(0), mote_locations()
    level = 20 + 3*np.sin(xy[:, 0]/8)
    put(tmp_path/'d', [f'2004-03-01 01:03:16 12 {m} {t + rng.normal():.3f} {60 - t + rng.normal():.3f} {300 + 10*t + 20*rng.normal():.2f} 2.68' for _ in range(120) for m, t in zip(ids, level)])
    p = sensors_problem(0, tmp_path/'d')
    assert p.domain.N == 54 and p.n == 3 and p.noise == 1 and np.corrcoef(p.values[:, 0], level)[0, 1] > .99 and np.corrcoef(p.values[:, 1], level)[0, 1] < -.99
    y = p.values.ravel(); np.testing.assert_allclose(p.b**2, y@np.linalg.solve(p.kernel(p.domain.points), y))
    a, b = sensors_problem(3), sensors_problem(np.random.default_rng(3))
    np.testing.assert_array_equal(a.values, b.values); assert (a.values != sensors_problem(4).values).any()
    lab = simulate_lab(0)
    assert isinstance(lab, LabReadings) and (lab.values[:, 2] >= 0).all() and len(lab.mote) == 54*3*24*6
    with pytest.raises(ValueError, match='is constant'): sensors_problem(0, lab._replace(values=lab.values*[1, 0, 1]))
    res = compare('sensors', ['MT-KB', 'MOBO'], T=5, trials=1)
    assert np.isfinite(res.cumulative['MT-KB']).all()
