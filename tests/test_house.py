"The house: what is public is documented, what is shipped is complete, and notebooks, modules and README keep step."
import ast, dataclasses, importlib, inspect, json, os, re, shutil, subprocess, sys, tarfile, zipfile
from configparser import ConfigParser
from importlib import metadata
from pathlib import Path

import pytest
from fastcore.docments import docments

ROOT = Path(__file__).resolve().parents[1]
LIB, NBS = ROOT/'mtbo_nb', ROOT/'nbs'
RUNTIME = ['numpy', 'scipy', 'matplotlib', 'fastcore']
MAY_IMPORT = {'core': {'core'}, 'multitask': {'core', 'multitask'}, 'additive': {'core', 'additive'}, 'chaining': {'core', 'chaining'},
              'lab': {'core', 'multitask', 'additive', 'chaining', 'lab'}}

_cfg = ConfigParser()
_cfg.read(ROOT/'settings.ini', encoding='utf-8')
CFG = dict(_cfg['DEFAULT'])
MODULES = sorted('.'.join(p.relative_to(ROOT).with_suffix('').parts) for p in LIB.rglob('*.py') if not p.name.startswith('_'))
ROOMS = [m for m in MODULES if m != 'mtbo_nb.all']
NOTEBOOKS = sorted(p for p in NBS.rglob('*.ipynb') if '.ipynb_checkpoints' not in p.parts)
nb_id = lambda p: p.relative_to(NBS).as_posix()

def cells(path, kind='code'):
    "(source, outputs) of the cells of one kind."
    for c in json.loads(path.read_text(encoding='utf-8'))['cells']:
        if c['cell_type'] == kind: yield ''.join(c['source']), c.get('outputs', [])

def sidebar():
    "The pages listed in nbs/sidebar.yml, in order."
    return re.findall(r'^\s*- (\S+\.ipynb)$', (NBS/'sidebar.yml').read_text(encoding='utf-8'), re.M)

@pytest.fixture(scope='module')
def copy(tmp_path_factory):
    "The project without its history, to be written to."
    dst = tmp_path_factory.mktemp('project')/'mtbo_nb'
    shutil.copytree(ROOT, dst, ignore=shutil.ignore_patterns('.git', '.ipynb_checkpoints', '__pycache__', '*.egg-info', 'build', 'dist', '_docs', '_proc',
                                                             '.venv', '.pytest_cache', '.hypothesis'))
    return dst

def run(*cmd, cwd, **env):
    r = subprocess.run([sys.executable, '-m', *cmd], cwd=cwd, capture_output=True, text=True, env={**os.environ, **env})
    assert r.returncode == 0, r.stdout + r.stderr
    return r.stdout

# ---- notebooks, modules and README keep step

def tree(root): return {p.relative_to(root).as_posix(): p.read_bytes() for d in ('nbs', 'mtbo_nb') for p in (root/d).rglob('*')
                        if p.is_file() and p.suffix in ('.py', '.ipynb')}

@pytest.mark.parametrize('command', ['nbdev_export', 'nbdev_clean'])
def test_export_and_clean_leave_no_diff(copy, command):
    before = tree(copy)
    r = subprocess.run([Path(sys.executable).with_name(command)], cwd=copy, capture_output=True, text=True)
    assert r.returncode == 0, r.stdout + r.stderr
    after = tree(copy)
    assert sorted(k for k in before.keys() | after.keys() if before.get(k) != after.get(k)) == []

def test_every_module_comes_from_its_notebook():
    exported = {m for p in NOTEBOOKS for s, _ in cells(p) for m in re.findall(r'^#\|\s*default_exp\s+(\S+)', s, re.M)}
    assert {f'mtbo_nb.{m}' for m in exported} == set(MODULES)
    for p in NOTEBOOKS:
        here = [m for s, _ in cells(p) for m in re.findall(r'^#\|\s*default_exp\s+(\S+)', s, re.M)]
        assert here in ([], [nb_id(p).removesuffix('.ipynb').replace('/', '.')]), f'{nb_id(p)} exports {here}'
        assert not (here and p.parent.name in ('tutorials', 'exercises')), f'{nb_id(p)}: pages only, nothing exported'

def test_readme_is_its_notebook():
    from mtbo_nb.lab.docs import readme
    text, pics = readme(NBS/CFG['readme_nb'])
    assert (ROOT/'README.md').read_text(encoding='utf-8') == text, 'run mtbo_docs --readme'
    assert {p.relative_to(ROOT).as_posix(): p.read_bytes() for p in (ROOT/'README_files').glob('*')} == pics, 'run mtbo_docs --readme'

def test_readme_has_a_picture_and_both_commands():
    text = (ROOT/'README.md').read_text(encoding='utf-8')
    for mark in ('run', 'test'): assert re.search(rf'<!--\s*{mark}\s*-->\s*```[a-z]*\n(.*?)```', text, re.S), f'no block after <!-- {mark} -->'
    assert re.search(r'!\[[^\]]{20,}\]\(\S+\.png\)', text), 'a picture with alternative text'
    for target in re.findall(r'\]\((?!https?:|#)([^)\s]+)\)', text): assert (ROOT/target).exists(), target

@pytest.mark.parametrize('path', NOTEBOOKS, ids=nb_id)
def test_outputs_are_saved(path):
    "No error, a picture where a caption promises one, a result where the last line asks for one."
    for source, outs in cells(path):
        assert not [o for o in outs if o['output_type'] == 'error'], source[:200]
        assert not [o for o in outs if o.get('name') == 'stderr'], f'a warning was saved:\n{source[:200]}'
        images = [o for o in outs if 'image/png' in o.get('data', {}) or 'image/svg+xml' in o.get('data', {})]
        if re.search(r'^#\|\s*fig-cap:', source, re.M):
            assert images, f'no picture saved:\n{source[:200]}'
            assert re.search(r'^#\|\s*fig-alt:\s*\S', source, re.M), f'a caption without fig-alt:\n{source[:200]}'
        if re.search(r'^#\|\s*(export|exporti|default_exp|hide|eval:)', source, re.M) or re.search(r'^\s*[%!]', source, re.M): continue
        body = ast.parse(source).body
        last = body[-1] if body else None
        prints = [s for s in body if isinstance(s, ast.Expr) and isinstance(s.value, ast.Call) and getattr(s.value.func, 'id', '') == 'print']
        shows = isinstance(last, ast.Expr) and not source.rstrip().endswith(';') and not isinstance(last.value, (ast.Call, ast.Constant, ast.Await))
        if prints or shows: assert outs, f'no output saved:\n{source[:200]}'

# ---- what is public is documented

ARRAYS = {'X', 'Z', 'Y', 'F', 'B', 'x', 'lam', 'lams', 'points', 'values', 'picks', 'theta', 'mu', 'lo', 'hi'}
SHAPE = re.compile(r"\((?:\.\.\.|[A-Za-z](?:'|_\w|[*+]\w)*|\d+)\s*,[^()]*\)")      # (N, d), (d,), (N*n, M*n), (..., n)

def public():
    "(module, dotted name, object) of everything in __all__, and of the public methods and properties of its classes."
    for m in ROOMS:
        mod = importlib.import_module(m)
        for name in getattr(mod, '__all__', ()):
            obj = getattr(mod, name)
            yield pytest.param(obj, id=f'{m[8:]}:{name}')
            if not isinstance(obj, type): continue
            for k, v in vars(obj).items():
                if k.startswith('_') or not (callable(v) or isinstance(v, (property, classmethod, staticmethod))) or isinstance(v, type): continue
                f = getattr(v, '__func__', v)
                if isinstance(v, property) or getattr(f, '__module__', '').startswith('mtbo_nb'): yield pytest.param(obj.__dict__[k] if isinstance(v, property) else getattr(obj, k), id=f'{m[8:]}:{name}.{k}')

@pytest.mark.parametrize('obj', list(public()))
def test_public_names_are_documented(obj):
    "A docstring; and where an argument is an array (`ARRAYS`), a shape in the docments or the docstring."
    doc = inspect.getdoc(obj)
    assert doc and len(doc.split()) >= 3, 'a docstring of at least three words'
    if isinstance(obj, property) or not callable(obj): return
    made = isinstance(obj, type) and (issubclass(obj, tuple) or dataclasses.is_dataclass(obj))     # constructor written by Python
    f = obj.__init__ if isinstance(obj, type) and not made and inspect.isfunction(obj.__init__) else obj
    notes = {'fields': inspect.getsource(obj)} if made else docments(f)
    arrays = ARRAYS & set(inspect.signature(f).parameters)
    if arrays: assert SHAPE.search(' '.join([doc, *(v for v in notes.values() if v)])), f'no shape for {arrays}'

def test_the_rule_about_shapes_can_fail():
    for text in ('(N, d) points', '(d,) point', '(N*n, M*n)', '(..., n) outputs', "(N', 2)"): assert SHAPE.search(text), text
    for text in ('points (N)', 'Eq. (6)', '(Burrough, 1998)', 'as in MTKB', '`f(x)`'): assert not SHAPE.search(text), text

# ---- rooms and names

@pytest.mark.parametrize('module', ROOMS)
def test_imports_keep_to_the_design(module):
    path = ROOT/(module.replace('.', '/') + '.py')
    room = module.split('.')[1]
    for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
        names = []
        if isinstance(node, ast.Import): names = [a.name for a in node.names]
        if isinstance(node, ast.ImportFrom):
            base = module.split('.')[:-node.level] if node.level else []
            stem = '.'.join([*base, *([node.module] if node.module else [])])
            names = [f'{stem}.{a.name}' if stem.count('.') < 1 else stem for a in node.names]
            assert not any(a.name == '*' for a in node.names) , f'{module} imports * from {stem}'
        for n in names:
            if n.split('.')[0] == 'mtbo_nb': assert n.split('.')[1] in MAY_IMPORT[room], f'{module} imports {n}'

def test_every_module_is_in_all():
    import mtbo_nb.all as everything
    where = {}
    for m in ROOMS:
        for name in importlib.import_module(m).__all__: where.setdefault(name, []).append(m)
    assert {n: ms for n, ms in where.items() if len(ms) > 1} == {}, 'one name, two modules'
    assert set(everything.__all__) == set(where)
    for name, (m,) in where.items(): assert getattr(everything, name) is getattr(importlib.import_module(m), name)

def test_every_notebook_is_in_the_sidebar_once():
    assert sorted(sidebar()) == sorted(nb_id(p) for p in NOTEBOOKS)

@pytest.mark.parametrize('path', NOTEBOOKS, ids=nb_id)
def test_notebook_starts_with_title_and_summary(path):
    first = next(cells(path, 'markdown'))[0]
    assert re.match(r'# \S.*\n\n> \S', first), 'a title, then one quoted line'
    assert not re.match(r'\d', path.name), 'the order stands in sidebar.yml, not in file names'

# ---- what is shipped is complete

def test_settings_are_the_only_source_of_metadata():
    assert set(re.findall(r'^\[(.+)\]$', (ROOT/'pyproject.toml').read_text(), re.M)) == {'build-system'}
    need = lambda key: {re.match(r'[\w.-]+', r)[0].lower(): r for r in CFG[key].split()}
    assert sorted(need('requirements')) == sorted(RUNTIME)
    assert '<' not in CFG['requirements'], 'no upper bounds for users: fastcore 1.x and 2.x both work'
    dev = need('dev_requirements')
    assert dev['nbdev'] == 'nbdev>=2.4,<3' and dev['execnb'] == 'execnb<0.2' and dev['fastcore'] == 'fastcore<2'
    import mtbo_nb
    assert mtbo_nb.__version__ == CFG['version'] and f"## {CFG['version']}" in (ROOT/'CHANGELOG.md').read_text()
    assert 'Apache License' in (ROOT/'LICENSE').read_text() and CFG['license'] == 'apache2'
    for line in CFG['console_scripts'].strip().splitlines():
        module, name = line.split('=')[1].split(':')
        assert callable(getattr(importlib.import_module(module), name)), line

def test_nbdev_yml_is_what_nbdev_writes():
    from nbdev.quarto import _nbdev_yml
    assert (NBS/'nbdev.yml').read_text() == _nbdev_yml.format(**{**CFG, 'doc_path': Path(CFG['doc_path']).name})

def test_wheel_and_sdist_hold_every_module(copy, tmp_path):
    run('build', '--no-isolation', '--outdir', str(tmp_path), cwd=copy)
    wheel, = tmp_path.glob('*.whl')
    sdist, = tmp_path.glob('*.tar.gz')
    want = {p.relative_to(ROOT).as_posix() for p in LIB.rglob('*') if p.is_file() and p.suffix != '.pyc' and '__pycache__' not in p.parts}
    names = set(zipfile.ZipFile(wheel).namelist())
    assert want - names == set()
    inside = {n.split('/', 1)[1] for n in tarfile.open(sdist).getnames() if '/' in n}
    assert (want | {'settings.ini', 'LICENSE', 'README.md'}) - inside == set()
    info = zipfile.ZipFile(wheel).read(next(n for n in names if n.endswith('METADATA'))).decode()
    assert sorted(re.match(r'[\w-]+', r)[0] for r in re.findall(r'^Requires-Dist: (.*)$', info, re.M) if 'extra ==' not in r) == sorted(RUNTIME)
    assert not [n for n in names if n.split('/')[0] not in ('mtbo_nb', f"mtbo_nb-{CFG['version']}.dist-info")]

def test_import_needs_four_packages_only():
    "Import everything while each package that the four do not bring along is hidden."
    brought, todo = set(), list(RUNTIME)
    while todo:
        d = re.sub(r'[-_.]+', '-', todo.pop()).lower()
        if d in brought: continue
        try: reqs = metadata.requires(d) or []
        except metadata.PackageNotFoundError: continue
        brought.add(d)
        todo += [re.match(r'[\w.-]+', r)[0] for r in reqs if 'extra ==' not in r]
    tops = {t for t, ds in metadata.packages_distributions().items() if any(re.sub(r'[-_.]+', '-', d).lower() in brought for d in ds)}
    code = f'''
import sys
allowed = {sorted(tops | {'mtbo_nb'})!r}
class Hide:
    def find_spec(self, name, path=None, target=None):
        top = name.split('.')[0]
        if top in allowed or top in sys.stdlib_module_names or top.startswith('_'): return None
        raise ImportError(f'{{name}} is hidden')
sys.meta_path.insert(0, Hide())
import importlib
for m in {MODULES!r}: importlib.import_module(m)
try: import nbdev
except ImportError: print('hidden')
'''
    r = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, cwd=ROOT)
    assert r.returncode == 0 and 'hidden' in r.stdout, r.stderr
