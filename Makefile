# Everything a newcomer runs. The environment is made by the first command that needs it.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test accuracy check format lock bench-simulate bench-train bench-estimate bench-classical bench-posterior reproduce-quick clean

demo: .venv/ready ## estimate a record, train, make the answer exact, and write the report to look at
	$(BIN)/python examples/demo.py

test: .venv/ready check ## lint, types and all quick tests
	$(BIN)/python -m pytest -q -n auto

accuracy: .venv/ready reproduce-quick ## the paper in small, and the slow tests of accuracy
	$(BIN)/python -m pytest -q -n auto -m accuracy

reproduce-quick: .venv/ready ## every table and figure of the paper, scaled down
	rm -rf build/paper && mkdir -p build/paper
	$(BIN)/greybayes reproduce all --quick --evaluation ../shared/data --drives ../shared/data/DATAPRBS.MAT -o build/paper --page build/paper/paper.md

check: .venv/ready ## ruff and pyright
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/python benchmarks/render.py --check

format: .venv/ready ## mend what ruff can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench-simulate: .venv/ready ## measure the simulator, and write benchmarks/results
	$(BIN)/python benchmarks/simulate.py
	$(BIN)/python benchmarks/render.py

bench-train bench-estimate: bench-%: .venv/ready ## the same for training and for estimators; needs PyTorch
	$(BIN)/python -c "import torch" || $(BIN)/python -m pip install --quiet torch==2.13.0
	$(BIN)/python benchmarks/$*.py
	$(BIN)/python benchmarks/render.py

bench-classical: .venv/ready .venv-peer/ready ## the classical methods, beside the particles package
	$(BIN)/python benchmarks/classical.py
	$(BIN)/python benchmarks/render.py

bench-posterior: .venv/ready .venv-sbi/ready .venv-flow/ready ## the posterior and refine, beside sbi and a flow
	$(BIN)/python benchmarks/posterior.py
	$(BIN)/python benchmarks/misfit.py
	$(BIN)/python benchmarks/heads.py
	$(BIN)/python benchmarks/render.py

.venv-sbi/ready: # sbi brings PyTorch
	$(PYTHON) -m venv .venv-sbi
	.venv-sbi/bin/python -m pip install --quiet torch==2.13.0
	.venv-sbi/bin/python -m pip install --quiet sbi
	touch $@

.venv-flow/ready: # beside our own JAX, for one comparison
	$(BIN)/python -m pip install --quiet --no-deps --target .venv-flow flowjax==19.1.2 paramax==0.0.5 lineax==0.1.1
	touch $@

.venv-peer/ready: # particles wants an older NumPy than we do
	$(PYTHON) -m venv .venv-peer
	.venv-peer/bin/python -m pip install --quiet particles
	touch $@

.venv/ready: requirements.lock pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --require-virtualenv -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

lock: ## pin what a fresh environment of the newest versions gets, after testing it
	rm -rf .venv-lock && $(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	.venv-lock/bin/python -m pip install --quiet hatchling editables ".[parquet]" --group dev
	.venv-lock/bin/python -m pip freeze --exclude greybayes > requirements.lock
	rm -rf .venv-lock

clean:
	rm -rf .venv .venv-lock .venv-peer .venv-sbi .venv-flow build dist
