"The figures on a cluster: a real LocalCluster of two worker processes, one of which is killed half-way."
import os, signal, threading, time

import numpy as np
import pytest

distributed = pytest.importorskip('distributed')

from mtbo_nb.core.bandit import Bandit
from mtbo_nb.lab.figures import ENTRIES, play

ROUNDS, TRIALS = 50, 3
SOME = {k: ENTRIES[k] for k in ('MT-KB', 'MT-BKB', 'IT-KB', 'SharpMT-KB', 'MOBO', 'random', 'constant 0.5', 'constant 1')}
ARGS = dict(names=['1b', '1d'], T=ROUNDS, trials=TRIALS, entries=SOME)


def finished(folder): # {path: seconds of the rounds} of the runs that are done
    out = {}
    for p in sorted((folder/'runs').glob('*/*.npz')):
        h = Bandit.load(p).history
        if len(h.X) == ROUNDS: out[p] = h.seconds
    return out


def test_a_killed_worker_costs_nothing(tmp_path):
    serial = play(folder=tmp_path/'serial', **ARGS)
    folder, seen = tmp_path/'cluster', {}
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, local_directory=str(tmp_path)) as cluster, \
         distributed.Client(cluster) as client:
        pids = list(client.run(os.getpid).values())
        assert len(set(pids)) == 2 and os.getpid() not in pids

        def kill():
            while len(list((folder/'runs').glob('*/*.npz'))) < len(SOME)*TRIALS//2: time.sleep(.01)
            os.kill(pids[0], signal.SIGKILL)
            seen.update(finished(folder))
        killer = threading.Thread(target=kill); killer.start()
        res = play(folder=folder, executor=client, **ARGS)
        killer.join()
        assert set(client.run(os.getpid).values()) != set(pids)                     # it was killed, and replaced
    assert 0 < len(seen) < len(SOME)*TRIALS*2                                       # half-way
    for panel, c in serial.items():
        for name, runs in c.runs.items():
            assert len(runs) == TRIALS == len(res[panel].runs[name])
            for a, b in zip(runs, res[panel].runs[name]):
                np.testing.assert_array_equal(a['X'], b['X'])
                for what in ('Y', 'cumulative', 'bayes'): np.testing.assert_allclose(a[what], b[what], rtol=0, atol=1e-11)   # rounding of other BLAS threads
    end = finished(folder)
    assert len(end) == len(SOME)*TRIALS*2
    for p, seconds in seen.items(): np.testing.assert_array_equal(end[p], seconds)  # what was done was not done again
