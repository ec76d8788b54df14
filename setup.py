"Package metadata, all of it read from settings.ini."
from configparser import ConfigParser
from pathlib import Path
from setuptools import find_packages, setup

here = Path(__file__).parent
cfg = ConfigParser()
cfg.read(here/'settings.ini', encoding='utf-8')
cfg = cfg['DEFAULT']
lib, extra = cfg['lib_name'], '_requirements'
scripts = [s.strip() for s in cfg['console_scripts'].splitlines() if s.strip()]
status = {'1': '1 - Planning', '2': '2 - Pre-Alpha', '3': '3 - Alpha', '4': '4 - Beta', '5': '5 - Production/Stable'}

setup(
    name=lib, version=cfg['version'], description=cfg['description'], keywords=cfg['keywords'].split(),
    long_description=(here/'README.md').read_text(encoding='utf-8'), long_description_content_type='text/markdown',
    license='Apache-2.0', license_files=['LICENSE'], author=cfg['author'], author_email=cfg['author_email'], url=cfg['git_url'],
    classifiers=[f"Development Status :: {status[cfg['status']]}", f"Intended Audience :: {cfg['audience']}",
                 f"Natural Language :: {cfg['language']}", 'Topic :: Scientific/Engineering :: Mathematics',
                 *[f'Programming Language :: Python :: {v}' for v in ('3.11', '3.12', '3.13')]],
    packages=find_packages(include=[lib, f'{lib}.*']), package_data={lib: ['*/data/*']}, zip_safe=False,
    python_requires='>=' + cfg['min_python'], install_requires=cfg['requirements'].split(),
    extras_require={k.removesuffix(extra): v.split() for k, v in cfg.items() if k.endswith(extra)},
    entry_points={'console_scripts': scripts, 'nbdev': [f'{lib}={lib}._modidx:d']})
