"The site: built once, walked through by its links and in a headless browser."
import functools, http.server, json, os, re, shutil, tempfile, threading
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from mtbo_nb.lab.docs import build_site, project

ROOT, CFG = project(__file__)
PAGES = sorted(p.relative_to(ROOT/'nbs').with_suffix('.html').as_posix() for p in (ROOT/'nbs').rglob('*.ipynb') if '.ipynb_checkpoints' not in p.parts)
CHROMIUM = shutil.which('chromium') or shutil.which('chromium-browser') or shutil.which('google-chrome')
FLAGS = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
         '--disable-component-update', '--disable-sync']

@pytest.fixture(scope='session')
def site(tmp_path_factory):
    "Folder of the built site, two folders deep in what the server serves: links must not count on being at the top."
    out = tmp_path_factory.mktemp('www')/'some'/'book'
    build_site(out, ROOT)
    return out

class Page(HTMLParser):
    "Links, loaded files, ids and images of a page."
    def __init__(self, path):
        super().__init__()
        self.links, self.loads, self.ids, self.images = [], [], set(), []
        self.feed(path.read_text(encoding='utf-8'))

    def handle_starttag(self, tag, attrs):
        a = dict(attrs)
        if 'id' in a: self.ids.add(a['id'])
        if tag == 'a' and a.get('href'): self.links.append(a['href'])
        if tag == 'link' and a.get('rel') not in ('canonical',): self.loads.append(a.get('href', ''))
        if tag in ('script', 'img', 'iframe', 'source', 'video', 'audio', 'embed') and a.get('src'): self.loads.append(a['src'])
        if tag == 'img': self.images.append(a)

@pytest.fixture(scope='session')
def parsed(site): return {p.relative_to(site).as_posix(): Page(p) for p in site.rglob('*.html')}

def target(base, href):
    "(path from the site's root, fragment) of a link on the page `base`; None for a link that leaves the site."
    u = urlsplit(href)
    if u.scheme or u.netloc: return None
    path = os.path.normpath(os.path.join(os.path.dirname(base), unquote(u.path))) if u.path else base
    return path, unquote(u.fragment)

# ---- without a browser

def test_every_notebook_has_a_page(parsed): assert set(PAGES) <= set(parsed)

def test_no_link_is_broken(site, parsed):
    bad = []
    for name, page in parsed.items():
        for href in page.links:
            got = target(name, href)
            if got is None: continue
            path, frag = got
            path = os.path.normpath(os.path.join(path, 'index.html')) if (site/path).is_dir() else path
            if not (site/path).is_file(): bad.append(f'{name}: {href}')
            elif frag and path in parsed and frag not in parsed[path].ids: bad.append(f'{name}: {href} (no such place)')
    assert bad == []

def test_links_to_our_own_names_are_relative(parsed):
    "And there are some: every page with an exported name is linked from its docments."
    for name, page in parsed.items():
        for href in page.links: assert not href.startswith((CFG['doc_host'], CFG['git_url'])), f'{name}: {href}'
    assert any(h.startswith('../core/checks.html#') for h in parsed['lab/docs.html'].links + parsed['multitask/pareto.html'].links + parsed['core/kernels.html'].links) \
        or any('#' in h and h.startswith('../core/') for p in parsed.values() for h in p.links)
    sources = [h for h in parsed['core/checks.html'].links if h.startswith('../source/core/checks.html#L')]
    assert len(sources) == 8 and len(set(sources)) == 8                # the names of core.checks, each at its line

def test_nothing_is_loaded_from_elsewhere(site, parsed):
    for name, page in parsed.items():
        for src in page.loads:
            if src.startswith('data:'): continue
            got = target(name, src)
            assert got and (site/got[0]).is_file(), f'{name} loads {src}'
    for css in site.rglob('*.css'):
        text = css.read_text(encoding='utf-8')
        assert not re.search(r'@import|url\(\s*["\']?(?:https?:)?//', text), css.name

def test_figures_have_alternative_text(parsed):
    "Every picture with a caption says in words what it shows."
    for name in PAGES:
        for img in parsed[name].images: assert len(img.get('alt') or '') > 15, f'{name}: {str(img)[:80]}'

def test_the_search_index_knows_the_pages(site):
    entries = json.loads((site/'search.json').read_text(encoding='utf-8'))
    assert {e['href'].split('#')[0] for e in entries} >= set(PAGES)
    assert (site/'search.js').read_text(encoding='utf-8') == 'window.searchIndex=' + (site/'search.json').read_text(encoding='utf-8') + ';'

def test_processing_keeps_text_and_figures(site):
    "What nbdev would drop is there: the paragraph under a title, figures of cells that import, folded sources."
    page = (site/'index.html').read_text(encoding='utf-8')
    assert 'kernelised bandit' in page and '<figcaption>' in page and 'data:image/png' in page
    assert '<details' in (site/'core/checks.html').read_text(encoding='utf-8')
    for p in (ROOT/'nbs').rglob('*.ipynb'):
        if '.ipynb_checkpoints' in p.parts: continue
        nb = json.loads(p.read_text(encoding='utf-8'))
        shown = [c for c in nb['cells'] if c['cell_type'] == 'code' and not re.search(r'^#\|\s*(hide|include:\s*false|output:\s*false)', ''.join(c['source']), re.M)]
        pics = sum('image/png' in o.get('data', {}) for c in shown for o in c['outputs'])
        html = (site/p.relative_to(ROOT/'nbs').with_suffix('.html')).read_text(encoding='utf-8')
        assert html.count('src="data:image/png') == pics, p.name

def test_an_output_folder_with_other_files_is_refused(tmp_path):
    (tmp_path/'thesis.tex').write_text('x')
    with pytest.raises(ValueError, match='out'): build_site(tmp_path, ROOT)
    assert (tmp_path/'thesis.tex').exists()

# ---- in a browser

@pytest.fixture(scope='session')
def browser():
    if not CHROMIUM:
        if os.environ.get('CI'): pytest.fail('the browser tests need chromium')
        pytest.skip('no chromium here')
    sync_api = pytest.importorskip('playwright.sync_api') if not os.environ.get('CI') else __import__('playwright.sync_api').sync_api
    with sync_api.sync_playwright() as p, tempfile.TemporaryDirectory() as profile:
        context = p.chromium.launch_persistent_context(profile, executable_path=CHROMIUM, args=FLAGS)
        yield context
        context.close()

@pytest.fixture(scope='session')
def server(site):
    "Address of the site on this machine."
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *a): pass
    httpd = http.server.ThreadingHTTPServer(('127.0.0.1', 0), functools.partial(Quiet, directory=str(site.parents[1])))
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    yield f'http://127.0.0.1:{httpd.server_port}/some/book'
    httpd.shutdown()

@pytest.fixture()
def tab(browser, server):
    "A page that notes console errors, failed requests and requests that leave the site."
    page, trouble = browser.new_page(), []
    def request(r):
        if not r.url.startswith((server + '/', 'data:', 'blob:')): trouble.append(f'request to {r.url}')
    page.on('request', request)
    page.on('console', lambda m: trouble.append(f'console: {m.text}') if m.type in ('error', 'warning') and 'favicon' not in m.location.get('url', '') else None)
    page.on('pageerror', lambda e: trouble.append(f'error: {e}'))
    page.on('response', lambda r: trouble.append(f'{r.status} {r.url}') if r.status >= 400 and not r.url.endswith('favicon.ico') else None)
    page.trouble = trouble
    yield page
    page.close()

STRAYS = """() => {
  const w = document.documentElement.clientWidth, out = [];
  const scrolls = e => { for (; e && e !== document.body; e = e.parentElement) if (['auto', 'scroll'].includes(getComputedStyle(e).overflowX)) return true; return false; };
  for (const e of document.querySelectorAll('main *')) {
    if (e.parentElement.closest('.katex')) continue;
    const r = e.getBoundingClientRect();
    if (r.width && r.right > w + 1 && !scrolls(e)) out.push(e.tagName + '.' + e.className + ': ' + e.textContent.slice(0, 60));
  }
  return out.slice(0, 3);
}"""

FAINT = """() => {
  const rgba = c => (c.match(/[\\d.]+/g) || []).map((v, i) => c.startsWith('color(') && i < 3 ? 255*v : Number(v));
  const lum = c => { const [r, g, b] = c.map(v => (v /= 255) <= .03928 ? v/12.92 : ((v + .055)/1.055)**2.4); return .2126*r + .7152*g + .0722*b; };
  const over = (top, under) => top.slice(0, 3).map((v, i) => v*(top[3] ?? 1) + under[i]*(1 - (top[3] ?? 1)));
  const back = e => { const c = rgba(getComputedStyle(e).backgroundColor), a = c[3] ?? 1;
    return a === 1 ? c : over(c, e.parentElement ? back(e.parentElement) : [255, 255, 255]); };
  const out = [];
  for (const e of document.querySelectorAll('#quarto-sidebar a, #TOC a, .navbar a, main p, main li, main th, main td, main figcaption, main h2, main summary, main a, main :not(pre) > code, main pre code span')) {
    if (!e.offsetParent || !e.textContent.trim() || e.closest('.katex')) continue;
    const bg = back(e), fg = over(rgba(getComputedStyle(e).color), bg), [a, b] = [lum(fg), lum(bg)].sort((x, y) => y - x), ratio = (a + .05)/(b + .05);
    if (ratio < 4.5) out.push(`${ratio.toFixed(1)} ${e.tagName}.${e.className}: ${e.textContent.slice(0, 30)}`);
  }
  return [...new Set(out)].slice(0, 5);
}"""

@pytest.mark.parametrize('scheme', ['light', 'dark'])
@pytest.mark.parametrize('name', PAGES)
def test_page_in_a_browser(tab, server, name, scheme):
    "Desktop and phone: no console error, nothing from elsewhere, every formula typeset, nothing faint, nothing sticks out."
    tab.emulate_media(color_scheme=scheme)
    tab.set_viewport_size({'width': 1280, 'height': 900})
    tab.goto(f'{server}/{name}', wait_until='load')
    maths = tab.locator('span.math').count()
    if maths: tab.wait_for_function("document.querySelectorAll('span.math .katex').length > 0")
    assert tab.locator('.katex-error').all_inner_texts() == []
    assert tab.evaluate("[...document.querySelectorAll('span.math')].filter(e => !e.querySelector('.katex')).map(e => e.textContent)") == []
    left = tab.evaluate("[...document.querySelectorAll('main p, main li, main td, main figcaption, main h2, main h3')].filter(e => !e.closest('pre'))"
                        ".map(e => { const c = e.cloneNode(true); c.querySelectorAll('code, .katex, script').forEach(x => x.remove()); return c.textContent; })"
                        ".filter(t => /\\\\[([]|\\$[^$ ]+\\$|\\\\(?:frac|sum|mathbb|lambda|Gamma)/.test(t))")
    assert left == [], 'mathematics left as text'
    assert tab.evaluate("document.documentElement.classList.contains('quarto-dark')") == (scheme == 'dark')
    assert tab.evaluate(FAINT) == [], 'contrast below 4.5'
    for width in (1280, 390):
        tab.set_viewport_size({'width': width, 'height': 900})
        tab.wait_for_timeout(50)
        assert tab.evaluate('document.documentElement.scrollWidth') <= width, f'{width} px: {tab.evaluate(STRAYS)}'
        assert tab.evaluate(STRAYS) == [], f'{width} px'
    assert tab.trouble == []

@pytest.mark.parametrize('query', ['Theorem', 'as_points'])
def test_search_finds(tab, server, query):
    tab.set_viewport_size({'width': 1280, 'height': 900})
    tab.goto(f'{server}/core/checks.html')
    box = tab.locator('.smalldocs-search input:visible').first
    box.fill(query)
    tab.wait_for_selector('a.search-result')
    hit = tab.locator('a.search-result').first
    assert query.lower() in tab.locator('.smalldocs-search-results:visible').first.inner_text().lower()
    hit.click()
    tab.wait_for_load_state()
    assert tab.url.startswith(server) and tab.trouble == []

def test_works_from_disk(browser, site):
    "Opened as files: formulas, links and search, without a server."
    page, errors = browser.new_page(), []
    page.on('pageerror', lambda e: errors.append(str(e)))
    page.on('requestfailed', lambda r: errors.append(r.url))
    page.set_viewport_size({'width': 1280, 'height': 900})
    page.goto((site/'core/checks.html').as_uri())
    page.wait_for_selector('.katex')
    page.locator('.smalldocs-search input:visible').first.fill('as_points')
    page.wait_for_selector('a.search-result')
    page.locator('a.search-result').first.click()
    page.wait_for_load_state()
    assert page.url.startswith(site.as_uri()) and errors == []
    page.close()

def test_the_theme_can_be_chosen(tab, server):
    tab.emulate_media(color_scheme='light')
    tab.set_viewport_size({'width': 1280, 'height': 900})
    tab.goto(f'{server}/index.html')
    dark = lambda: tab.evaluate("document.documentElement.classList.contains('quarto-dark')")
    assert not dark()
    tab.locator('.quarto-color-scheme-toggle:visible').first.click()
    tab.wait_for_function("document.documentElement.classList.contains('quarto-dark')")
    tab.goto(f'{server}/core/checks.html')
    assert dark(), 'the choice is kept on the next page'
    tab.locator('.quarto-color-scheme-toggle:visible').first.click()
