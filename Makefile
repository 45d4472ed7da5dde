# make help lists what there is to make.

GO     := $(or $(shell command -v go),/usr/local/go/bin/go)
CC      = gcc
BUILD  := build

# Tests and generators call go, gofmt and gcc by name.
export PATH := $(abspath $(dir $(GO))):$(PATH)
# The Go programs are built without cgo; only the race detector needs it.
export CGO_ENABLED = 0
# Go keeps what it has built and fetched in somebody's home, which services and containers may not have.
ifeq ($(HOME),)
export HOME    := $(abspath $(BUILD))/.home
export GOFLAGS += -modcacherw
endif
# A line for each step; the commands, too, with V=1.
Q    := $(if $(V),,@)
step  = @$(if $(V),:,printf '  %-8s %s\n' '$(1)' '$(2)')

# Where tests find what is built here: bin, guest, bench.
export PEGASUS_BUILD = $(abspath $(BUILD))

DEMO        ?=
FUZZTIME    ?= 1s
# Inputs after which a fuzz target ends earlier; none if FUZZTIME is given.
FUZZINPUTS  ?= $(if $(filter file,$(origin FUZZTIME)),50000)
SOAKTIME    ?= 10m
# How long a package's tests may take, on a machine that is slow and has other things to do.
PATIENCE    ?= 90m
E2E         ?= $(wildcard test/scenarios/*.toml)
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
NFPM        := github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.43.0

# Debian packages, each where it is needed first.
BUILD_NEEDS := ca-certificates gcc libc6-dev
RUN_NEEDS   := ffmpeg
TEST_NEEDS  := clang-14 g++ gfortran-12 gcc-12-offload-nvptx libgomp-plugin-nvptx1 nvptx-tools xen-utils-4.17 zstd fish zsh
VM_NEEDS    := qemu-system-x86 ovmf busybox-static e2fsprogs squashfs-tools systemd ffmpeg libvirt-daemon libvirt-daemon-driver-qemu libvirt-clients
XEN_NEEDS   := qemu-system-x86 busybox-static xz-utils
REPORT_NEEDS := chromium
PACKAGE_NEEDS := binutils
CLUSTER_NEEDS := runc busybox-static
LIVE_NEEDS    := $(CLUSTER_NEEDS) containernetworking-plugins iproute2
OPERATE_NEEDS := tmux chromium fonts-dejavu-core mmdebstrap systemd-container lintian rpm
CLIENT_NEEDS := python3-numba python3-blessed python3-psutil python3-six python3-pkg-resources libncursesw6 libsystemd0
# Unpacked: of Debian's contrib section, what these need, and cuRAND, which PyCUDA is linked with; and examples of NVIDIA's own for Go.
CLIENTS     := nvtop gpustat python3-pynvml hwloc libhwloc15 libhwloc-contrib-plugins libltdl7 libpciaccess0 \
               python3-pycuda python3-pytools python3-appdirs python3-decorator python3-mako libboost-python1.74.0 libboost-thread1.74.0 libcurand10
GO_NVML     := v0.12.4-0
# Unpacked: installed, it would run as a service.
OPERATE_UNPACKED := prometheus
SITE_NEEDS  := hugo
BENCH_NEEDS := pocl-opencl-icd ocl-icd-opencl-dev

.DELETE_ON_ERROR:
.PHONY: build binaries man guest guest-asan recorder benchmarks run sim report-test bench policies-e2e soak operate-test clients gpu-test vm-test xen-image xen-test vm-demo test check quick format vet staticcheck tidy compile_commands.json \
	generate stale unit unit-go unit-nvidia unit-system beside raced race fuzz fresh-test deps deps-test deps-build deps-run deps-bench docs clean help FORCE

build: binaries guest benchmarks recorder ## build everything (the default)

help: ## list these targets
	@sed -n 's/^\([a-z0-9_.-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | sort | awk -F'|' '{printf "  make %-12s %s\n", $$1, $$2}'

# --- Go programs

# What a build is called: its commit, or without git a sum of the sources.
RELEASE = $(shell git describe --always --dirty 2>/dev/null || echo sources-$$($(SOURCES) | sort -z | xargs -0 cat | sha256sum | cut -c -12))
SOURCES = find . -path ./$(BUILD) -prune -o \( -name '*.go' -o -name 'go.*' \) -type f -print0

# One program speaks to libvirt through its C library, which it looks for when it runs:
# nothing of libvirt is needed to build it.
WITH_LIBVIRT = CGO_ENABLED=1
LIBVIRT_TAG  = -tags libvirt_dlopen

# Another speaks to NVIDIA's driver, which it looks for likewise.
WITH_NVIDIA = CGO_ENABLED=1
NVIDIA      = ./accel/nvidia ./accel/nvidia/driver ./cmd/pegasus-nvidia

# What is copied into a virtual machine is one file: the compiler takes the libraries for
# the empty files of their names in guest/setup.
binaries: $(BUILD)/guest/libcuda.so.1 $(BUILD)/guest/libnvidia-ml.so.1 | deps-build
	@mkdir -p $(BUILD)/bin
	@echo '{"Replace": {"guest/setup/libcuda.so.1": "$<", "guest/setup/libnvidia-ml.so.1": "$(word 2,$^)"}}' >$(BUILD)/overlay.json
	$(call step,GO,pegasusd pegasus pegasus-guest)
	$(Q)$(GO) build -trimpath -buildvcs=false -overlay $(BUILD)/overlay.json -ldflags '-X pegasus/backend/control.release=$(RELEASE)' -o $(BUILD)/bin/ ./cmd/pegasusd ./cmd/pegasus ./cmd/pegasus-guest
	$(call step,GO,pegasus-libvirt)
	$(Q)$(WITH_LIBVIRT) $(GO) build -trimpath -buildvcs=false $(LIBVIRT_TAG) -o $(BUILD)/bin/ ./cmd/pegasus-libvirt
	$(call step,GO,pegasus-nvidia)
	$(Q)$(WITH_NVIDIA) $(GO) build -trimpath -buildvcs=false -o $(BUILD)/bin/ ./cmd/pegasus-nvidia

man: binaries ## write the man pages, to build/man
	$(call step,MAN,$(BUILD)/man)
	@rm -rf $(BUILD)/man
	@mkdir -p $(BUILD)/man/man8
	$(Q)$(BUILD)/bin/pegasus document man $(BUILD)/man/man1
	$(Q)for p in pegasusd pegasus-guest pegasus-libvirt pegasus-nvidia; do $(BUILD)/bin/$$p man-page >$(BUILD)/man/man8/$$p.8 || exit 1; done

# --- for Kubernetes: a module of its own, so that the main one needs nothing of it

IMAGE  ?= pegasus.local/pegasus:1
# The same flags for programs, vet and tests: with others, Go would compile Kubernetes' packages once more.
CLUSTER = GOFLAGS='$(GOFLAGS) -trimpath -buildvcs=false' $(GO) -C cluster

.PHONY: cluster cluster-image cluster-check cluster-vet cluster-unit cluster-fuzz cluster-vm-test cluster-test
cluster: | deps-build ## build what runs on the nodes of a Kubernetes cluster, to build/cluster: docs/kubernetes.md
	@mkdir -p $(BUILD)/cluster
	$(call step,GO,$(BUILD)/cluster)
	$(Q)$(CLUSTER) build -o $(abspath $(BUILD))/cluster/ ./cmd/...
	$(Q)ln -sf pegasus-fleet $(BUILD)/cluster/kubectl-pegasus

cluster-image: build cluster ## write the container image for a cluster's nodes, to build/cluster/pegasus-image.tar
	$(call step,IMAGE,$(BUILD)/cluster/pegasus-image.tar)
	$(Q)$(BUILD)/cluster/pegasus-image -build $(BUILD) -name $(IMAGE) -o $(BUILD)/cluster/pegasus-image.tar

cluster-check: cluster-vet cluster-unit cluster-fuzz ## vet and test what is for Kubernetes, without a cluster (installs runc)

cluster-vet:
	$(call step,VET,cluster)
	$(Q)$(CLUSTER) vet -tags soak ./...
	$(Q)$(CLUSTER)/kueue vet ./...
	$(call step,STATIC,cluster)
	$(Q)$(CLUSTER) run $(STATICCHECK) ./...
	$(call step,TIDY,cluster/go.mod)
	$(Q)$(CLUSTER) mod tidy -diff
	$(Q)$(CLUSTER)/kueue mod tidy -diff

cluster-unit: build cluster
	@scripts/deps $(CLUSTER_NEEDS)
	$(call step,TEST,cluster)
	$(Q)$(CLUSTER) test -vet=off -timeout $(PATIENCE) ./...
	$(Q)$(CLUSTER)/kueue test -vet=off -timeout $(PATIENCE) ./...

cluster-fuzz: | deps-build
	cd cluster && GO=$(GO) GOFLAGS='$(GOFLAGS) -trimpath -buildvcs=false' ../scripts/fuzz $(FUZZTIME) $(FUZZINPUTS)

# Kubernetes itself, in a folder whose name has the hash of its sources' versions: it takes a quarter of an hour to build.
KUBERNETES   = v1.37.2
KUBERNETES_HASH := $(shell cat cluster/kubernetes/go.sum cluster/kubernetes/*.go cluster/kubernetes/*/go.sum | sha256sum | cut -c 1-16)
KUBERNETES_AT := $(BUILD)/kubernetes-$(KUBERNETES_HASH)
KUBERNETES_X = -s -w $(foreach p,k8s.io/component-base k8s.io/client-go/pkg,-X $p/version.gitVersion=$(KUBERNETES) -X $p/version.gitMajor=1 -X $p/version.gitMinor=37)
VENDORED     = CGO_ENABLED=0 $(GO) -C cluster/kubernetes

cluster-vm-test: build cluster ## a machine by KubeVirt's definition under a real libvirt, beside a pod (installs QEMU, libvirt and runc)
	@scripts/deps $(CLUSTER_NEEDS) $(VM_NEEDS)
	$(call step,TEST,cluster/test)
	$(Q)$(CLUSTER) test -tags soak -count 1 -vet=off -timeout $(PATIENCE) -run TestMachine -v ./test

cluster-test: cluster-vm-test cluster-image $(BUILD)/kubernetes ## run the chart in a real Kubernetes of one node (installs runc and network plugins, builds Kubernetes once)
	@scripts/deps $(LIVE_NEEDS)
	$(call step,TEST,cluster/test/live)
	$(Q)$(CLUSTER) test -tags soak -count 1 -vet=off -timeout $(PATIENCE) -v ./test/live

$(BUILD)/kubernetes: $(KUBERNETES_AT)/done FORCE
	@ln -sfn $(notdir $(KUBERNETES_AT)) $@

$(KUBERNETES_AT)/done: | deps-build
	@mkdir -p $(@D)
	@echo 'Building etcd, Kubernetes, containerd and kwok, once: some 20 minutes of processor time.'
	$(call step,GO,$(@D)/kubernetes)
	$(Q)$(VENDORED) build -trimpath -buildvcs=false -gcflags 'k8s.io/...=-dwarf=false' -ldflags '$(KUBERNETES_X)' -o $(abspath $(@D))/ .
	$(call step,GO,$(@D)/containerd)
	$(Q)$(VENDORED)/containerd build -trimpath -buildvcs=false -tags no_btrfs,no_zfs,no_devmapper -ldflags '-s -w' -o $(abspath $(@D))/ tool
	$(call step,GO,$(@D)/kwok)
	$(Q)$(VENDORED)/kwok build -trimpath -buildvcs=false -ldflags '-s -w' -o $(abspath $(@D))/ tool
	$(Q)for s in node/fast/node-initialize node/heartbeat-with-lease/node-heartbeat-with-lease pod/fast/pod-ready pod/fast/pod-delete; do \
	echo ---; cat "$$($(VENDORED)/kwok list -m -f '{{.Dir}}' sigs.k8s.io/kwok)/kustomize/stage/$$s.yaml"; done >$(@D)/kwok-stages.yaml
	@touch $@

docs: ## build the documentation as a site, in build/site, and check its links (installs hugo)
	@scripts/deps $(SITE_NEEDS)
	$(call step,HUGO,$(BUILD)/site)
	$(Q)$(GO) run ./tools/site -o $(BUILD)/site

# --- the guest's C library

C_FLAGS    := -std=gnu11 -Wall -Wextra -Werror -pthread -MMD -MP
GUEST      := guest/libcuda
GUEST_SRC  := $(wildcard $(GUEST)/*/*.c)
# An optional component: tables that are in no manual, for programs with NVIDIA's CUDA runtime in them; one of them
# only for who has a key to it.
TABLES     := guest/tables
TABLES_SRC := $(if $(RUNTIME_TABLES),$(filter-out $(if $(RUNTIME_KEY),,%/integrity.c %/md2.c),$(wildcard $(TABLES)/*.c)))
GUEST_LINK := -shared -pthread -Wl,-soname,libcuda.so.1 -Wl,-z,nodelete -Wl,--version-script=$(GUEST)/api/zz_libcuda.map
GUEST_C    := $(C_FLAGS) -fPIC -fvisibility=hidden -Iguest/include -I$(GUEST)
ASAN       := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer

guest: $(BUILD)/guest/libcuda.so.1 $(BUILD)/guest/libcuda.so $(BUILD)/guest/libnvidia-ml.so.1
guest-asan: $(BUILD)/guest/asan/libcuda.so.1 $(BUILD)/guest/asan/libcuda.so

$(BUILD)/guest/libcuda.so.1: $(GUEST_SRC:$(GUEST)/%.c=$(BUILD)/guest/obj/%.o) $(TABLES_SRC:$(TABLES)/%.c=$(BUILD)/guest/obj/tables/%.o) \
		$(GUEST)/api/zz_libcuda.map $(BUILD)/guest/components
	$(call step,LD,$@)
	$(Q)$(CC) $(filter %.o,$^) $(GUEST_LINK) -Wl,-z,defs -o $@

# Changes when another choice of components is built, so that the library is linked anew.
$(BUILD)/guest/components: FORCE
	@mkdir -p $(@D)
	@echo '$(TABLES_SRC)' | cmp -s - $@ || echo '$(TABLES_SRC)' >$@

$(BUILD)/guest/asan/libcuda.so.1: $(GUEST_SRC:$(GUEST)/%.c=$(BUILD)/guest/asan/obj/%.o) $(GUEST)/api/zz_libcuda.map
	$(call step,LD,$@)
	$(Q)$(CC) $(ASAN) $(filter %.o,$^) $(GUEST_LINK) -o $@

$(BUILD)/guest/obj/%.o: $(GUEST)/%.c Makefile | deps-build
	@mkdir -p $(@D)
	$(call step,CC,$<)
	$(Q)$(CC) -O2 $(GUEST_C) -c $< -o $@

$(BUILD)/guest/obj/tables/%.o: $(TABLES)/%.c Makefile | deps-build
	@mkdir -p $(@D)
	$(call step,CC,$<)
	$(Q)$(CC) -O2 $(GUEST_C) -I$(BUILD)/guest -c $< -o $@

$(BUILD)/guest/obj/tables/integrity.o: $(BUILD)/guest/runtime_key.h
$(BUILD)/guest/runtime_key.h: $(RUNTIME_KEY) FORCE
	@mkdir -p $(@D)
	@scripts/runtime-key '$(RUNTIME_KEY)' >$@.new && { cmp -s $@.new $@ && rm $@.new || mv $@.new $@; }

$(BUILD)/guest/asan/obj/%.o: $(GUEST)/%.c Makefile | deps-build
	@mkdir -p $(@D)
	$(call step,CC,$<)
	$(Q)$(CC) -O1 -g $(ASAN) $(GUEST_C) -c $< -o $@

# What tools watch GPUs by. It has libcuda's way to the host in it, but none of its functions.
NVML      := guest/nvml
NVML_SRC  := $(wildcard $(NVML)/*.c)
NVML_LINK := -shared -pthread -Wl,-soname,libnvidia-ml.so.1 -Wl,-z,nodelete -Wl,--gc-sections -Wl,--version-script=$(NVML)/zz_nvml.map

$(BUILD)/guest/libnvidia-ml.so.1: $(NVML_SRC:$(NVML)/%.c=$(BUILD)/guest/obj/nvml/%.o) $(GUEST_SRC:$(GUEST)/%.c=$(BUILD)/guest/obj/%.o) $(NVML)/zz_nvml.map
	$(call step,LD,$@)
	$(Q)$(CC) $(filter %.o,$^) $(NVML_LINK) -Wl,-z,defs -o $@

$(BUILD)/guest/obj/nvml/%.o: $(NVML)/%.c Makefile | deps-build
	@mkdir -p $(@D)
	$(call step,CC,$<)
	$(Q)$(CC) -O2 $(GUEST_C) -c $< -o $@

%/libcuda.so: %/libcuda.so.1
	@ln -sf libcuda.so.1 $@

# --- the library that records calls, and the program that makes them again

RECORD     := guest/record
RECORD_SRC := record special zz_calls

recorder: $(BUILD)/record/libcuda.so.1 $(BUILD)/record/replay

$(BUILD)/record/libcuda.so.1: $(RECORD_SRC:%=$(BUILD)/record/obj/%.o) $(RECORD)/zz_record.map
	$(call step,LD,$@)
	$(Q)$(CC) $(filter %.o,$^) -shared -pthread -Wl,-soname,libcuda.so.1 -Wl,--version-script=$(RECORD)/zz_record.map -Wl,-z,defs -ldl -o $@

$(BUILD)/record/replay: $(BUILD)/record/obj/replay.o
	$(call step,LD,$@)
	$(Q)$(CC) $^ -pthread -ldl -lm -o $@

$(BUILD)/record/obj/%.o: $(RECORD)/%.c Makefile | deps-build
	@mkdir -p $(@D)
	$(call step,CC,$<)
	$(Q)$(CC) -O2 $(C_FLAGS) -fPIC -fvisibility=hidden -Iguest/include -I$(RECORD) -c $< -o $@

# --- benchmark programs: one source of its own each, and what they share

BENCH        := guest/bench
BENCH_SHARED := bench options latency report scene
BENCH_OWN    := vectoradd matmul blackscholes walsh reduction histogram nbody busy calls first lud heartwall srad frames bomb mriq coulomb montecarlo binomial image tpacf rpes picser

benchmarks: $(BENCH_OWN:%=$(BUILD)/bench/%)

$(BENCH_OWN:%=$(BUILD)/bench/%): $(BUILD)/bench/%: $(BUILD)/bench/obj/%.o $(BENCH_SHARED:%=$(BUILD)/bench/obj/%.o) | guest
	$(call step,LD,$@)
	$(Q)$(CC) $^ -L$(BUILD)/guest -lcuda -lm -o $@

$(BUILD)/bench/obj/%.o: $(BENCH)/%.c $(wildcard $(BENCH)/kernels/zz_*.ptx) Makefile | deps-build
	@mkdir -p $(@D)
	$(call step,CC,$<)
	$(Q)$(CC) -O2 $(C_FLAGS) -Iguest/include -Wa,-I$(BENCH)/kernels -c $< -o $@

# --- for editors: how each C file is compiled

COMPILES  = $(wildcard test/programs/*.c test/visit/*.c)
compile_commands.json: ## write how each C file is compiled, for clangd and other tools
	@{ $(MAKE) -Bn V=1 RUNTIME_TABLES=1 guest recorder benchmarks; \
	   printf '$(CC) -O2 $(C_FLAGS) -Iguest/include -c %s -o /dev/null\n' $(COMPILES); } | scripts/compile-commands >$@

-include $(wildcard $(BUILD)/record/obj/*.d $(BUILD)/guest/obj/*/*.d $(BUILD)/guest/asan/obj/*/*.d $(BUILD)/bench/obj/*.d)

# --- packages

# The number of commits orders packages; the commit names one.
PACKAGE_VERSION ?= 0.$(or $(shell git rev-list --count HEAD 2>/dev/null),0)+$(shell git describe --always --dirty=.dirty 2>/dev/null || echo sources)

.PHONY: packages operate-test
packages: build man ## build packages, .deb and .rpm, for a host and for a virtual machine, to build/packages
	@scripts/deps $(PACKAGE_NEEDS)
	$(call step,PACKAGE,$(PACKAGE_VERSION))
	$(Q)scripts/package $(BUILD) '$(PACKAGE_VERSION)' $(GO) run $(NFPM)

# --- the main job and the benchmarks

run: deps-build deps-run ## set up, then show programs of several domains share one accelerator
	@$(MAKE) --no-print-directory build
	$(BUILD)/bin/pegasus demo $(DEMO)

bench: build deps-bench ## measure, to a table and build/bench.json
	$(GO) run ./tools/measure -o $(BUILD)/bench.json

policies-e2e: build ## run the papers' programs under the policies, beside what the simulator foretells
	$(GO) run ./tools/compare -o $(BUILD)/policies-e2e.json $(E2E)

sim: ## run the scenarios of the simulator, 20 seeds each
	$(GO) run ./cmd/pegasus sim run all

report-test: ## open the simulator's report, the page of the fleet and the site of the documentation in a browser without a window (installs chromium and hugo)
	@scripts/deps $(REPORT_NEEDS) $(SITE_NEEDS)
	$(GO) test -tags browser -count=1 -run InBrowser ./sim/report ./tools/site
	$(CLUSTER) test -tags browser -count=1 -vet=off -run InBrowser ./fleet

# --- tests

test: deps-test ## run all tests; make deps installs what they need
	@scripts/step 'Build' $(MAKE) build guest-asan
	@scripts/step 'Format, tidy, generated files' $(MAKE) -k format tidy stale
	@scripts/step 'Tests of the packages' $(MAKE) -j 2 -O unit-go unit-nvidia
	@scripts/step 'Tests of the whole system; beside them, vet, staticcheck and compiling for the race detector' $(MAKE) -k -j 2 -O unit-system beside
	@scripts/step 'Tests with virtual machines' $(MAKE) vm-test
	@scripts/step 'Tests with Xen' $(MAKE) xen-test
	@scripts/step 'Tests with the race detector' $(MAKE) race
	@scripts/step 'Rehearsal of a visit to a GPU; fuzz each decoder for $(FUZZTIME)$(FUZZINPUTS:%= or % inputs)' $(MAKE) -j 2 -O gpu-rehearsal fuzz
	@echo 'All tests passed.'

quick: deps-build ## check what your change needs, in a minute: format, vet, tests of the changed packages and their dependants
	@GO=$(GO) scripts/quick $(BASE)

check: build guest-asan format vet staticcheck tidy stale ## the fast part of the tests
	@$(MAKE) --no-print-directory race

format:
	$(call step,FORMAT,*.go)
	@bad=$$(find . -path ./$(BUILD) -prune -o -name '*.go' -exec gofmt -l {} +); \
	[ -z "$$bad" ] || { echo "gofmt would change:"; echo "$$bad"; exit 1; }

# All files at once: no file is for programs without C or without a tag.
EVERYTHING = -tags libvirt_dlopen,soak,clients,browser ./...
# Collecting garbage takes more than half of staticcheck's time otherwise.
CHECKING   = GOGC=400 CGO_ENABLED=1

vet:
	$(call step,VET,./...)
	$(Q)$(CHECKING) $(GO) vet $(EVERYTHING)

staticcheck:
	$(call step,STATIC,./...)
	$(Q)$(CHECKING) $(GO) run $(STATICCHECK) $(EVERYTHING)

tidy:
	$(call step,TIDY,go.mod)
	$(Q)$(GO) mod tidy -diff
	$(Q)$(GO) mod verify >/dev/null

generate: deps-test ## write the generated files anew
	$(call step,GENERATE,./...)
	$(Q)$(GO) generate ./...

# Whatever generating changes or adds was stale, or missing.
stale: files = find . \( -path ./$(BUILD) -o -path ./.git \) -prune -o -type f -exec sha256sum {} + | sort -k 2
stale:
	@mkdir -p $(BUILD)
	@$(files) >$(BUILD)/files.before
	@grep -q '/zz_' $(BUILD)/files.before || { echo 'There are no generated files.'; exit 1; }
	$(call step,GENERATE,./...)
	$(Q)$(GO) generate ./...
	@$(files) | diff $(BUILD)/files.before - || { echo 'These files were stale. They are written anew: look at them and commit.'; exit 1; }

# The longest first, so that no core is idle at the end. Many tests wait for most of their time: more packages and
# tests at once than there are cores keep these busy. make vet has vetted them.
FIRST := guest/tests cmd/pegasus cmd/pegasusd accel/soft accel/soft/lane xenstore/xenstoretest

# The others are those with tests that the race detector does not run, or runs shortened. It runs all other packages'
# tests as they are: they run once, with it.
PARTLY_RACED := $(filter-out accel/nvidia test test/vm test/xen,$(patsubst ./%/,%,$(sort $(dir $(shell \
	grep -rlE --include='*_test.go' --exclude-dir=$(BUILD) --exclude-dir=cluster 'testing\.Short\(\)|^//go:build !race|"pegasus/accel/acceltest"' .)))))
UNRACED := guest/tests policies accel/ptx accel/soft/lane/arith
AT_ONCE := -vet=off -p $(shell echo $$(($$(nproc) + 3))) -parallel $(shell echo $$(($$(nproc) + 2)))
TESTS_AT_ONCE := -vet=off -parallel $(shell echo $$(($$(nproc) + 2)))

unit: build guest-asan ## the tests that the race detector does not run, or not in full; those of the whole system come last
	@$(MAKE) -j 2 -O unit-go unit-nvidia
	@$(MAKE) unit-system

unit-system:
	$(call step,TEST,./test)
	$(Q)$(GO) test -timeout $(PATIENCE) $(TESTS_AT_ONCE) ./test

unit-go:
	$(call step,TEST,packages)
	$(Q)$(GO) test $(AT_ONCE) -timeout $(PATIENCE) $(FIRST:%=./%) $(patsubst %,./%,$(filter-out $(FIRST),$(sort $(PARTLY_RACED) $(UNRACED))))

unit-nvidia:
	$(call step,TEST,NVIDIA)
	$(Q)$(WITH_NVIDIA) $(GO) test -vet=off -timeout $(PATIENCE) $(NVIDIA)

vm-demo: build ## see two machines of a libvirt of their own share an accelerator 1:3 (installs QEMU and libvirt)
	@scripts/deps $(VM_NEEDS)
	$(GO) run ./test/vm/demo

vm-test: build ## the tests with virtual machines (installs QEMU and libvirt)
	@scripts/deps $(VM_NEEDS)
	$(GO) test -timeout $(PATIENCE) -count 1 $(TESTS_AT_ONCE) -v ./test/vm

xen-image: build ## what xen-test boots: Xen, Dom0 and domUs, kept in build/vm (gets them from Debian)
	@scripts/deps $(XEN_NEEDS)
	$(GO) run ./test/xen/prepare

xen-test: xen-image ## the tests with a real Xen (installs QEMU, and gets Xen and its tools from Debian)
	$(GO) test -vet=off -timeout $(PATIENCE) -count 1 -v ./test/xen

# Their order with the race detector, which slows computing down most.
FIRST_RACED := accel/soft/lane accel/soft cmd/pegasusd cmd/pegasus hypervisor/hub xenstore/xenstoretest hypervisor/xen/domus

# The guest's library is C, which has its own sanitizers. Policies and PTX, and their tests, start no goroutine.
RACED = $$($(GO) list ./... | grep -vxF $(patsubst %,-e pegasus/%,$(UNRACED) test test/vm test/xen))

# The tests start hundreds of programs, of which each would sleep a second before it exits.
race: | deps-build ## the tests of the Go packages with the race detector
	$(call step,RACE,packages)
	$(Q)GORACE=atexit_sleep_ms=10 CGO_ENABLED=1 $(GO) test -race -short $(AT_ONCE) -timeout $(PATIENCE) $(LIBVIRT_TAG) $(NVIDIA) $(FIRST_RACED:%=./%) $(RACED) ./cmd/pegasus-libvirt

# What needs no more than the time that a test of the whole system leaves idle.
beside:
	@nice -n 19 $(MAKE) -k vet staticcheck raced

raced: | deps-build
	$(call step,GO,packages with the race detector)
	$(Q)CGO_ENABLED=1 $(GO) list -race -test -export $(LIBVIRT_TAG) $(NVIDIA) $(RACED) ./cmd/pegasus-libvirt >/dev/null

fuzz: ## fuzz each decoder for FUZZTIME, by default for 1s or 50000 inputs
	GO=$(GO) scripts/fuzz $(FUZZTIME) $(FUZZINPUTS)

soak: SEED = $${PEGASUS_TEST_SEED:-fresh}
soak: build guest-asan ## the tests that take SOAKTIME each, those of random inputs with others than each time, and fuzzing for longer
	PEGASUS_TEST_SEED=$(SEED) $(GO) test -timeout $(PATIENCE) -count 3 $$($(GO) list -f '{{.ImportPath}} {{.TestImports}} {{.XTestImports}}' ./accel/... ./backend/... ./cuda | sed -n '/pegasus\/test\/seeds/s/ .*//p') ./xenstore/...
	@$(MAKE) --no-print-directory fuzz FUZZTIME=1m
	PEGASUS_TEST_SEED=$(SEED) SOAKTIME=$(SOAKTIME) $(GO) test -tags soak -run Soak -count 1 -timeout 12h -v ./...

clients: build ## get tools that watch GPUs, Numba, PyCUDA and hwloc, and try them (installs Debian's packages)
	@scripts/deps $(CLIENT_NEEDS)
	@scripts/clients $(BUILD)/clients $(CLIENTS)
	CGO_ENABLED=1 GOBIN=$(abspath $(BUILD))/clients/bin $(GO) install github.com/NVIDIA/go-nvml/examples/devices@$(GO_NVML) github.com/NVIDIA/go-nvml/examples/compute-processes@$(GO_NVML)
	$(GO) test -tags clients -run '^TestClients|^TestFFmpeg.*s$$' -count 1 -v -timeout $(PATIENCE) ./test

operate-test: build ## operate the whole as on a host: screens, the page in a browser, packages in a bare Debian (installs tmux, chromium, mmdebstrap and more)
	@scripts/deps $(OPERATE_NEEDS) $(PACKAGE_NEEDS)
	@command -v npm >/dev/null || scripts/deps npm
	@scripts/clients $(BUILD)/operate $(OPERATE_UNPACKED)
	PATH="$(abspath $(BUILD))/operate/root/usr/bin:$$PATH" $(GO) test -tags soak -run '^TestOperate' -count 1 -v -timeout $(PATIENCE) ./test/operate

gpu-test: build $(BUILD)/gpu/cases ## compare the cases of PTX with a real GPU, and try the accelerator on it, if there is one
	$(GO) test -tags gpu -run '^TestGPU$$' -count 1 -v ./accel/soft/lane
	$(WITH_NVIDIA) $(GO) test -run '^TestGPU$$' -count 1 -v -timeout 20m ./accel/nvidia

$(BUILD)/gpu/cases: test/programs/cases.c test/programs/check.h | guest
	@mkdir -p $(@D)
	$(call step,LD,$@)
	$(Q)$(CC) -O2 $(C_FLAGS) -Iguest/include $< -L$(BUILD)/guest -lcuda -o $@

# --- a folder for a short time on a machine with a GPU, which needs nothing else

VISIT      := $(BUILD)/visit
VISIT_GO   := -trimpath -buildvcs=false -ldflags '-s -w'
VISIT_C    := probe rates
VISIT_TEST := semantics corners thief

.PHONY: gpu-visit gpu-rehearsal
gpu-visit: build $(VISIT_C:%=$(VISIT)/programs/%) $(VISIT_TEST:%=$(VISIT)/programs/%) $(VISIT)/gpu/cases ## build a folder to carry to a machine with a GPU: docs/nvidia.md
	@rm -rf $(VISIT)/bin $(VISIT)/guest $(VISIT)/bench $(VISIT)/tests $(VISIT)/lane $(VISIT)/python $(VISIT)/spec $(VISIT)/offload $(VISIT)/libgomp $(VISIT)/record
	@mkdir -p $(VISIT)/bin $(VISIT)/guest $(VISIT)/bench $(VISIT)/tests $(VISIT)/lane $(VISIT)/spec
	$(call step,GO,$(VISIT))
	$(Q)$(GO) build $(VISIT_GO) -o $(VISIT)/bin/ ./cmd/pegasusd ./cmd/pegasus
	$(Q)$(GO) build $(VISIT_GO) -o $(VISIT)/ ./tools/visit
	$(Q)$(WITH_NVIDIA) $(GO) build $(VISIT_GO) -o $(VISIT)/bin/ ./cmd/pegasus-nvidia
	$(Q)$(WITH_NVIDIA) $(GO) test -c $(VISIT_GO) -o $(VISIT)/tests/nvidia.test ./accel/nvidia
	$(Q)$(GO) test -c $(VISIT_GO) -tags gpu -o $(VISIT)/tests/lane.test ./accel/soft/lane
	@cp $(BUILD)/guest/*.so.1 $(VISIT)/guest/
	@cp $(BENCH_OWN:%=$(BUILD)/bench/%) $(VISIT)/bench/
	@mkdir -p $(VISIT)/record && cp $(BUILD)/record/libcuda.so.1 $(BUILD)/record/replay $(VISIT)/record/
	@mkdir -p $(VISIT)/lane/testdata && cp accel/soft/lane/testdata/forms.txt accel/soft/lane/testdata/cases.txt $(VISIT)/lane/testdata/
	@scripts/offload test/offload $(VISIT)
	@cp -r test/visit/python $(VISIT)/python
	@cp cuda/spec/driver_api.json $(VISIT)/spec/
	@cp test/visit/runtime.cu $(VISIT)/
	@tar -C $(BUILD) -czf $(BUILD)/visit.tar.gz visit
	@du -h $(BUILD)/visit.tar.gz | sed 's/\t.*//; s/^/Carry $(subst /,\/,$(BUILD))\/visit.tar.gz, of /; s/$$/, there, and run what each takes less than 9 minutes:/'
	@for c in facts agree measure; do echo "  tar -xzf visit.tar.gz && visit/visit $$c --out FOLDER"; done

gpu-rehearsal: gpu-visit ## try what would be done there with the software accelerator as the GPU
	@rm -rf $(BUILD)/rehearsal
	@for c in facts agree measure; do $(VISIT)/visit $$c --rehearse --budget 1h --out $(BUILD)/rehearsal || exit 1; done
	@! grep -l '"state": "FAILED"' $(BUILD)/rehearsal/*.json

$(VISIT_C:%=$(VISIT)/programs/%): $(VISIT)/programs/%: test/visit/%.c test/visit/driver.h | deps-build
	@mkdir -p $(@D)
	$(call step,LD,$@)
	$(Q)$(CC) -O2 $(filter-out -M%,$(C_FLAGS)) -Iguest/include $< -ldl -lm -o $@

$(VISIT_TEST:%=$(VISIT)/programs/%): $(VISIT)/programs/%: test/programs/%.c test/programs/check.h | guest
	@mkdir -p $(@D)
	$(call step,LD,$@)
	$(Q)$(CC) -O2 $(filter-out -M%,$(C_FLAGS)) -Iguest/include $< -L$(BUILD)/guest -lcuda -lm -o $@

$(VISIT)/gpu/cases: $(BUILD)/gpu/cases
	@mkdir -p $(@D)
	@cp $< $@

fresh-test: ## try the README's commands in a bare Debian of their own
	GO=$(GO) scripts/fresh-test

# --- what else must be installed

deps: ## install what building, running and testing need
	@scripts/deps $(BUILD_NEEDS) $(RUN_NEEDS) $(TEST_NEEDS) $(VM_NEEDS) $(XEN_NEEDS) $(CLUSTER_NEEDS)

deps-test:
	@scripts/deps --check $(BUILD_NEEDS) $(RUN_NEEDS) $(TEST_NEEDS) $(VM_NEEDS) $(XEN_NEEDS)

deps-build:
	@scripts/deps $(BUILD_NEEDS)

deps-run:
	@scripts/deps $(RUN_NEEDS)

deps-bench:
	@scripts/deps $(BENCH_NEEDS)

clean: ## remove what was built
	rm -rf $(BUILD)
