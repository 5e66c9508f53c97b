# Sandyard. `make` prints what there is.

GOLANGCI_VERSION    := v2.15.0
GOVULNCHECK_VERSION := v1.1.4

BUILD       := -buildvcs=false -trimpath -ldflags '-s -w'
PROGRAMS    := ./cmd/api ./cmd/worker ./cmd/scheduler ./cmd/guest ./cmd/keeper ./cmd/sandyard
TOOLS       := bin/tools
GOLANGCI    := $(TOOLS)/golangci-lint-$(GOLANGCI_VERSION)
GOVULNCHECK := $(TOOLS)/govulncheck-$(GOVULNCHECK_VERSION)
ENGINE      := scripts/engine.sh
# What the soaks need: PROVIDER=local needs no engine.
SOAK        := PROVIDER='$(PROVIDER)' $(if $(filter local,$(PROVIDER)),,$(ENGINE)) scripts/chaos.sh

.DEFAULT_GOAL := help
.PHONY: help setup build image tree run test verify chaos chaos-proof soak soak-proof idle gvisor faults fuzz e2b attack bench lint fmt vuln generate compose-check compose-image compose-smoke clean

help: ## Print this
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Install what is missing on this machine (Debian packages, as root or through sudo)
	@scripts/setup.sh

build: ## Build the static programs into bin/
	@echo "build: compiling into bin/ (some minutes the first time, seconds later)"
	@CGO_ENABLED=0 go build $(BUILD) -o bin/ $(PROGRAMS)
	@CGO_ENABLED=0 go build $(BUILD) -o bin/sup ./cmd/guest-sup

image: ## Make the image sandboxes start from (TEMPLATE=base, node, data-science, browser or code-server: another one)
	@scripts/setup.sh '$(TEMPLATE)'
	@TEMPLATE='$(TEMPLATE)' $(ENGINE) images/build.sh

tree: setup ## Unpack that image for the local provider, which needs no engine (root)
	@images/tree.sh

run: setup build ## Start everything on this machine and run one program in a sandbox (ONCE=1: then stop)
	@ONCE='$(ONCE)' exec scripts/run.sh

test: setup-test build ## Run the tests on real PostgreSQL, Redis and Docker (ARGS=...; RACE=1: with the race detector; STRICT=1: fail where an image cannot be made)
	@RACE='$(or $(RACE),0)' STRICT='$(or $(STRICT),0)' $(ENGINE) scripts/test.sh $(ARGS)

verify: ## Run the deep suites one after the other and print a table (ONLY="step step": these alone; root)
	@ONLY='$(ONLY)' scripts/verify.sh

chaos: setup-test ## Kill, stop and cut off everything under load, then ask what became of every job (SEED=n: as before, LENGTH=2m, PROVIDER=local; root)
	@SEED='$(SEED)' LENGTH='$(LENGTH)' $(SOAK)

chaos-proof: setup-test ## Switch the fence, the sweep, reconciling and the spools off, one at a time, and see the soak find it out (root)
	@RUN='TestProof$$' SEED='$(SEED)' $(ENGINE) scripts/chaos.sh

soak: setup-test ## Ten minutes of steady load without faults: nothing may grow (LENGTH=10m, PROVIDER=local; root)
	@RUN='TestSoak$$' LENGTH='$(or $(LENGTH),10m)' $(SOAK)

soak-proof: setup-test ## See the soak find out workers that keep a goroutine and a file of every job (root)
	@RUN='TestFlatness$$|TestRowsGoWithTheLoad$$|TestSoakFindsLeaks$$' $(ENGINE) scripts/chaos.sh

idle: setup-test ## Print what a system costs that nobody uses, without sandboxes and with fifty (root)
	@RUN='TestIdle$$' $(ENGINE) scripts/chaos.sh

gvisor: setup-test build ## Run the provider's suite, the hostile one and that of egress under gVisor (root)
	@$(ENGINE) scripts/test.sh -tags gvisor -timeout=20m -run UnderGVisor ./providers/docker ./tests/egress

faults: setup-test ## Fail every call of a run of each kind of job, before and after its effect, and let the provider hang or be slow (SEED=n: that sample; ONLY=a failure's or a run's name; HANG=1: with silence)
	@scripts/faults.sh '$(SEED)' '$(ONLY)' '$(HANG)'

fuzz: setup-test ## Fuzz what reads hostile input, each target for a while (TIME=30s, ONLY=a target)
	@scripts/fuzz.sh '$(or $(TIME),30s)' '$(ONLY)'

e2b: setup-test setup-e2b ## Run E2B's own clients, npm and PyPI e2b, against Sandyard (STRICT=1: fail where they cannot be installed)
	@STRICT='$(or $(STRICT),0)' $(ENGINE) scripts/e2b.sh $(ARGS)

attack: setup-test ## Play every known attack of one tenant on another one and on the installation (ONLY=a name)
	@ONLY='$(ONLY)' $(ENGINE) scripts/attack.sh

bench: setup-test build ## Run the benchmarks (JSON=file, BENCH=regexp)
	@JSON='$(JSON)' BENCH='$(BENCH)' $(ENGINE) scripts/bench.sh

lint: $(GOLANGCI) ## Check the code and its format
	@go vet ./...
	@$(GOLANGCI) run ./...
	@$(GOLANGCI) run --build-tags chaos ./tests/chaos
	@$(GOLANGCI) run --build-tags attack ./tests/attack

fmt: $(GOLANGCI) ## Format the code
	@$(GOLANGCI) fmt ./...

vuln: $(GOVULNCHECK) ## Look for known vulnerabilities in what the code calls (STRICT=1: fail where that cannot be done)
	@STRICT='$(or $(STRICT),0)' scripts/vuln.sh $(GOVULNCHECK)

generate: ## Write the generated files again
	@go generate ./...

compose-check: setup-compose ## Check docker-compose.yml
	@scripts/compose.sh check

compose-image: build ## Make the image sandyard:dev from bin/, without a registry
	@$(ENGINE) scripts/compose.sh image

compose-smoke: setup-compose build ## Start the Compose topology, without a registry, and run a job on it (root)
	@scripts/compose.sh smoke

clean: ## Remove what was built; the data under .sandyard/ stays
	@rm -rf bin

.PHONY: setup-test setup-compose setup-e2b
setup-test setup-compose setup-e2b: setup-%:
	@scripts/setup.sh $*

$(GOLANGCI): tool = github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
$(GOVULNCHECK): tool = golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK_VERSION)
$(GOLANGCI) $(GOVULNCHECK):
	@echo "building $(@F)"
	@GOBIN='$(CURDIR)/$(TOOLS)' go install $(tool)
	@mv '$(TOOLS)/$(firstword $(subst @, ,$(notdir $(tool))))' '$@'
