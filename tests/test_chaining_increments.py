"Levels of increments: limits, shapes, broken arguments, and bounds that are bounds."
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mtbo_nb.chaining.increments import clopper_pearson, ell_gauss, ell_products, ell_psi, ell_squares, ell_subgamma, fenchel, product_cgf

us, ds = st.floats(1e-3, 50), st.floats(1e-6, 1e6)


@given(us, ds)
def test_the_quantile_is_below_the_closed_form(u, d):
    assert ell_gauss(u, d, exact=True) <= ell_gauss(u, d)*(1 + 1e-12)


@settings(deadline=None)
@given(us, ds, st.floats(.01, 100), st.floats(1e-3, 10))
def test_numerical_inversion_is_the_closed_form(u, d, nu, c):
    got = ell_psi(lambda l, d: nu*(l*d)**2/(2*(1 - c*l*d)), u, d, lambda d: 1/(c*d))
    np.testing.assert_allclose(got, ell_subgamma(u, d, nu, c), rtol=1e-7)
    np.testing.assert_allclose(fenchel(lambda l, d: (l*d)**2/2, ell_gauss(u, d), d), u, rtol=1e-7)


@settings(deadline=None)
@given(us, st.floats(1e-3, 1.99), st.integers(1, 20))
def test_squares(u, d, N):
    a, b = ell_squares(u, d, N, exact=True), ell_squares(u, d, N)
    assert 0 < a <= b*(1 + 1e-9)
    np.testing.assert_allclose(ell_squares(u, d, scales=np.full(N, 3.), exact=True), 3*a, rtol=1e-7)
    np.testing.assert_allclose(ell_squares(u, 2*d, N, kappa=4., exact=True), 4*a, rtol=1e-7)      # units of g: twice g is four times f
    z = np.zeros(N)
    np.testing.assert_allclose(ell_products(u, z, z, d, np.sqrt(4 - d*d), 0.), a, rtol=1e-5)


def test_zero_distance_and_shapes():
    assert ell_gauss(3., 0.) == ell_gauss(3., 0., exact=True) == ell_subgamma(3., 0., 1., 1.) == ell_squares(3., 0., 2) == ell_squares(3., 0., 2, exact=True) == 0
    u, d = np.ones((3, 1)), np.linspace(0, 1, 4)
    for f in (ell_gauss, ell_subgamma, ell_squares, lambda u, d: ell_squares(u, d, 3, exact=True), lambda u, d: ell_psi(lambda l, d: (l*d)**2/2, u, d)):
        assert np.shape(f(u, d)) == (3, 4)
    assert product_cgf(.1, 0., 0., 1., 1., 0., N=3).shape == ()
    assert ell_squares(1., 2., 1) > 0 and ell_squares(1., 2., 1, exact=True) == 0     # opposite values have equal squares


@pytest.mark.parametrize('call, says', [
    (lambda: ell_gauss(-1, 1), 'u must'), (lambda: ell_gauss(1, np.nan), 'd must'), (lambda: ell_subgamma(1, 1, -1.), 'nu must'), (lambda: ell_subgamma(1, 1, 1, np.inf), 'c must'),
    (lambda: ell_psi(lambda l, d: l, 1, 1, -2.), 'lam must'), (lambda: ell_squares(1, 1, 0), 'N must'), (lambda: ell_squares(1, 2.1), 'd must'), (lambda: ell_squares(1, 1, scales=[]), 'scales'),
    (lambda: clopper_pearson(11, 10), 'k must'), (lambda: clopper_pearson(1, 10, 1.), 'level')])
def test_bad_arguments(call, says):
    with pytest.raises(ValueError, match=says): call()


def test_clopper_pearson_covers():
    rng, n = np.random.default_rng(0), 50
    for p in (.01, .3, .97):
        lo, hi = clopper_pearson(rng.binomial(n, p, 20_000), n, .9)
        assert ((lo <= p) & (p <= hi)).mean() >= .9 - 3*np.sqrt(.09/20_000)
