"Package metadata, all of it read from settings.ini."
from configparser import ConfigParser
from pathlib import Path
from setuptools import find_packages, setup

cfg = ConfigParser()
cfg.read(Path(__file__).parent/'settings.ini', encoding='utf-8')
cfg = cfg['DEFAULT']
lib = cfg['lib_name']
extras = {k[:-len('_requirements')]: cfg[k].split() for k in cfg if k.endswith('_requirements')}
scripts = [s.strip() for s in cfg['console_scripts'].split('\n') if s.strip()]

setup(name=lib, version=cfg['version'], description=cfg['description'], keywords=cfg['keywords'],
      long_description=Path(__file__).with_name('README.md').read_text(encoding='utf-8')
      if Path(__file__).with_name('README.md').exists() else cfg['description'],
      long_description_content_type='text/markdown', license='Apache-2.0',
      author=cfg['author'], author_email=cfg['author_email'], url=cfg['git_url'],
      packages=find_packages(include=[lib, f'{lib}.*']), include_package_data=True,
      package_data={lib: ['lab/data/*']},
      python_requires='>=' + cfg['min_python'], install_requires=cfg['requirements'].split(), extras_require=extras,
      entry_points={'console_scripts': scripts, 'nbdev': [f'{lib}={lib}._modidx:d']}, zip_safe=False)
