# Sandyard. `make` prints what there is.

GOLANGCI_VERSION    := v2.15.0
GOVULNCHECK_VERSION := v1.1.4
GOTESTSUM_VERSION   := v1.13.0

# All targets compile alike: what one has compiled the others find in Go's cache. The race detector needs more. Nothing
# here needs DWARF, which costs 7 % of the time to compile, or symbols, which cost a fifth of the time to link; for a
# debugger, build without make.
export CGO_ENABLED := 0
export GOFLAGS     := $(strip $(shell go env GOFLAGS 2>/dev/null) -trimpath -buildvcs=false -gcflags=all=-dwarf=false -ldflags=-s)

BUILD       := -ldflags '-s -w'
PROGRAMS    := ./cmd/api ./cmd/worker ./cmd/scheduler ./cmd/guest ./cmd/sandbox-shim ./cmd/sandyard
# Tools are kept under their version and that of the Go that built them.
TOOLS       := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/sandyard/tools/$(shell go env GOVERSION 2>/dev/null)
GOLANGCI    := $(TOOLS)/golangci-lint-$(GOLANGCI_VERSION)
GOVULNCHECK := $(TOOLS)/govulncheck-$(GOVULNCHECK_VERSION)
GOTESTSUM   := $(TOOLS)/gotestsum-$(GOTESTSUM_VERSION)
# The packages whose tests need no services.
UNIT        := ./dev/abbench ./gateway ./netguard ./guest/... ./imageref ./tokens ./providers/catalog ./providers/codecontext ./providers/confine \
	./providers/fake ./providers/guestconn ./providers/local/cgroup ./providers/local/filter ./providers/local/shim ./providers/local/script ./providers/meter ./providers/dockerfile ./tests/benchtable ./tests/house ./tests/silence ./toolset/...
ENGINE      := scripts/engine.sh
# What tests start stands in a directory of the run, the engine too, and goes with it.
ROOM        := scripts/room.sh
YARD        := $(ROOM) $(ENGINE)
# What the soaks need: PROVIDER=local needs no engine.
SOAK        := PROVIDER='$(PROVIDER)' $(if $(filter local,$(PROVIDER)),$(ROOM),$(YARD)) scripts/chaos.sh

.DEFAULT_GOAL := help
.PHONY: help setup build image tree run check test verify gate-proof chaos chaos-proof soak soak-proof soak-providers providers-proof idle gvisor faults fuzz e2b attack bench lint fmt vuln generate compose-check compose-image compose-smoke clean

help: ## Print this
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Install what is missing on this machine (Debian packages, as root or through sudo)
	@scripts/setup.sh

build: ## Build the static programs into bin/
	@echo "build: compiling into bin/ (some minutes the first time, seconds later)"
	@go build $(BUILD) -o bin/ $(PROGRAMS)
	@go build $(BUILD) -o bin/sup ./cmd/guest-sup

image: ## Make the image sandboxes start from (TEMPLATE=name: another one of images/README.md)
	@scripts/setup.sh '$(TEMPLATE)'
	@TEMPLATE='$(TEMPLATE)' $(ENGINE) images/build.sh

tree: setup ## Unpack that image for the local provider, which needs no engine (root)
	@images/tree.sh

run: setup build ## Start everything on this machine and run one program in a sandbox (ONCE=1: then stop)
	@ONCE='$(ONCE)' exec scripts/run.sh

check: lint ## Check format and code, and run the tests that need no services
	@go test $(UNIT)

test: setup-test build $(GOTESTSUM) ## Run the tests on real PostgreSQL, Redis and Docker (ARGS=...; LONG=1: the long ones, too; RACE=1: with the race detector; STRICT=1: fail where an image cannot be made)
	@GOTESTSUM='$(GOTESTSUM)' LONG='$(or $(LONG),0)' RACE='$(or $(RACE),0)' STRICT='$(or $(STRICT),0)' $(YARD) scripts/test.sh $(ARGS)

gate-proof: ## Show what .ci/run withstands: STEP=kill, load (RUNS=2) or pair (root)
	@STEP='$(STEP)' RUNS='$(RUNS)' scripts/gate-proof.sh

verify: ## Run the deep suites one after the other and print a table (ONLY="step step": these alone; root)
	@ONLY='$(ONLY)' scripts/verify.sh

chaos: setup-test ## Kill, stop and cut off everything under load, then ask what became of every job (SEED=n: as before, LENGTH=2m, PROVIDER=local; root)
	@SEED='$(SEED)' LENGTH='$(LENGTH)' $(SOAK)

chaos-proof: setup-test ## Switch the fence, the sweep, reconciling and the spools off, one at a time, and see the soak find it out (root)
	@RUN='TestProof$$' SEED='$(SEED)' $(YARD) scripts/chaos.sh

soak: setup-test ## Ten minutes of steady load without faults: nothing may grow (LENGTH=10m, PROVIDER=local; root)
	@RUN='TestSoak$$' LENGTH='$(or $(LENGTH),10m)' $(SOAK)

soak-proof: setup-test ## See the soak find out workers that keep a goroutine and a file of every job (root)
	@RUN='TestFlatness$$|TestRowsGoWithTheLoad$$|TestSoakFindsLeaks$$' $(YARD) scripts/chaos.sh

soak-providers: setup-test ## Two providers, one of whose vendors drops answers, hangs, limits rates and goes away: the other's jobs go on (SEED=n, LENGTH=3m, PROVIDER=daytona; root)
	@RUN='TestProviders$$' SEED='$(SEED)' LENGTH='$(or $(LENGTH),3m)' PROVIDER=local $(ROOM) scripts/chaos.sh -vendor='$(or $(PROVIDER),e2b)'

providers-proof: setup-test ## Plant three defects in what keeps two providers apart, one at a time, and see that soak find each (root)
	@RUN='TestProvidersProof$$' SEED='$(SEED)' PROVIDER=local $(ROOM) scripts/chaos.sh

idle: setup-test ## Print what a system costs that nobody uses, without sandboxes and with fifty (root)
	@RUN='TestIdle$$' $(YARD) scripts/chaos.sh

gvisor: setup-test build ## Run the provider's suite, the hostile one and that of egress under gVisor (root)
	@$(YARD) scripts/test.sh -tags gvisor -timeout=20m -run UnderGVisor ./providers/docker ./tests/egress

faults: setup-test ## Fail every call of a run of each kind of job, before and after its effect, and let the provider hang or be slow (SEED=n: that sample; ONLY=a failure's or a run's name; HANG=1: with silence)
	@$(ROOM) scripts/faults.sh '$(SEED)' '$(ONLY)' '$(HANG)'

fuzz: setup-test ## Fuzz what reads hostile input, each target for a while (TIME=30s, ONLY=a target)
	@$(ROOM) scripts/fuzz.sh '$(or $(TIME),30s)' '$(ONLY)'

e2b: setup-test ## Run the official clients of E2B, Daytona and MCP against Sandyard, and the providers over vendors (RACE=1; STRICT=1: fail where they cannot be installed)
	@RACE='$(or $(RACE),0)' STRICT='$(or $(STRICT),0)' $(YARD) scripts/e2b.sh $(ARGS)

attack: setup-test ## Play every known attack of one tenant on another one and on the installation (ONLY=a name)
	@ONLY='$(ONLY)' $(YARD) scripts/attack.sh

bench: setup-test build ## Run the benchmarks (JSON=file, BENCH=regexp)
	@JSON='$(JSON)' BENCH='$(BENCH)' $(YARD) scripts/bench.sh

lint: $(GOLANGCI) ## Check the format and the code, go vet's checks among them
	@$(GOLANGCI) fmt --diff ./...
	@GOGC=$${GOGC:-200} $(GOLANGCI) run --allow-parallel-runners --build-tags attack,chaos,e2b,gvisor ./...

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
	@$(ROOM) scripts/compose.sh smoke

clean: ## Remove what was built; the data under .sandyard/ stays
	@rm -rf bin

.PHONY: tools
tools: $(GOLANGCI) $(GOTESTSUM)

.PHONY: setup-test setup-compose
setup-test setup-compose: setup-%:
	@scripts/setup.sh $*

$(GOLANGCI): tool = github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
$(GOVULNCHECK): tool = golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK_VERSION)
$(GOTESTSUM): tool = gotest.tools/gotestsum@$(GOTESTSUM_VERSION)
$(GOLANGCI) $(GOVULNCHECK) $(GOTESTSUM):
	@echo "building $(@F)"
	@mkdir -p '$(TOOLS)' && draft=$$(mktemp -d '$(TOOLS)/.draft-XXXXXX') && GOBIN=$$draft go install $(tool) && mv $$draft/* '$@' && rmdir $$draft
