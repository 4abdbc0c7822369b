# snug - one file builds everything. `make help` lists the targets.
#
# Switches: CUDA=1 (the GPU backend), MPI=1 (ranks from mpirun), DEBUG=1 (ASan, UBSan), FAULTS=1 (calls that can be
# made to fail: base/fault.h), WERROR=1, ASSETS=DIR (real data for tests), V=1 (commands are shown). Each flavour has
# its own build folder. CC, CPPFLAGS, CFLAGS, LDFLAGS and LDLIBS mean what they usually do and come after our own.

, := ,
CUDA   ?= 0
MPI    ?= 0
DEBUG  ?= 0
FAULTS ?= 0
WERROR ?= 0
V      ?= 0
ASSETS ?= ../shared/assets
PREFIX ?= /usr/local
B      := build/cuda$(CUDA)-debug$(DEBUG)$(if $(filter 1,$(MPI)),-mpi1)
F      := $(B)-faults1

# The rooms, bottom up; rooms.txt says who may include whom.
ROOMS := base ir model plan backend backend/cpu exec data store obs comm/mpi fit ring weights gen suite train reason amr grpo parse unlearn \
         monitor cli
SRC   := $(foreach r,$(ROOMS),$(sort $(wildcard src/$(r)/*.c)))
LIB   := $(filter-out src/cli/main.c,$(SRC))
TESTS := $(sort $(notdir $(patsubst %/,%,$(dir $(wildcard tests/*/test_*.c)))))

# A call without a prototype returns an int: half a pointer. Such mistakes are errors in every build.
SOUND     := -Werror=implicit -Werror=int-conversion -Werror=incompatible-pointer-types
C_FLAGS   := -std=c11 -D_GNU_SOURCE -Isrc -g -fno-math-errno -pthread \
             -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wno-unused-parameter $(SOUND)
C_FLAGS   += $(if $(filter 1,$(WERROR)),-Werror)
SANITIZE  := $(if $(filter 1,$(DEBUG)),-fsanitize=address -fsanitize=undefined)
C_FLAGS   += $(if $(filter 1,$(DEBUG)),-O1 $(SANITIZE) -fno-omit-frame-pointer -DDEBUG=1,-O2)
# With the sanitizers a process begins by moving its 12 MB of addresses: a third of what a small command takes.
LINK_FLAGS := -pthread $(SANITIZE) $(if $(filter 1,$(DEBUG)),-no-pie)
LINK_LIBS  := -lm -ldl

# A step log hashes the whole binary: with -O1 and the sanitizers that took 1.4 s of every run that has one.
FLAGS_sha256.c := -O2

# Only src/comm/mpi sees it.
ifeq ($(MPI),1)
FLAGS_ranks.c := -DHAVE_MPI $(shell mpicc --showme:compile 2>/dev/null)
LINK_LIBS += $(shell mpicc --showme:link 2>/dev/null)
endif

.DEFAULT_GOAL := all

# The GPU: sources, compiler and flags of its room.
ifeq ($(CUDA),1)
include src/backend/cuda/cuda.mk
endif
include tools/checks.mk

# All cores, unless -j says otherwise: it wins over this line, and reaches the makes below.
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(JOBS)
endif

OBJ     := $(LIB:%=$(B)/%.o)
TESTBIN := $(TESTS:%=$(B)/test-%)
HOOKED  := $(shell grep -l '"base/fault.h"' $(SRC))

# What libs.sh found is the stamp on which every object depends: compiler, flags and libraries. Goals that only call
# make, or build nothing, do without it: it may be that the libraries are still to be installed.
WITHOUT_LIBS := help clean deps demo check check-all faults-all tsan valgrind lint fuzz rooms format uninstall
quote   = '$(subst ','\'',$(1))'
PROBE   = CC=$(call quote,$(CC)) CFLAGS=$(call quote,$(C_FLAGS) $(CPPFLAGS) $(CFLAGS)) \
          LDFLAGS=$(call quote,$(LINK_FLAGS) $(LDFLAGS)) \
          ALSO=$(call quote,$(LINK_LIBS) $(LDLIBS) $(FLAGS_ranks.c) $(FLAGS_cublas.c))
STAMP  := $(B)/libs.mk
ifneq ($(filter-out $(WITHOUT_LIBS),$(or $(MAKECMDGOALS),all)),)
$(shell $(PROBE) tools/libs.sh $(STAMP))
include $(STAMP)
endif

# One short line a file.
Q    := $(if $(filter 1,$(V)),,@)
note  = $(if $(filter 1,$(V)),,@echo "  $(1)  $(2)")
CCALL = $(CC) $(C_FLAGS) $(FLAGS_$(notdir $<)) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<
LDALL = $(CC) $(LINK_FLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(LIBS) $(LINK_LIBS) $(LDLIBS)

.PHONY: all snug deps demo check check-all faults-all test-bins rooms clean help format install uninstall libs-there

all: snug
include fuzz/fuzz.mk

help:
	@echo "make            build ./snug"
	@echo "make demo       install what is missing, build, plan, train, reason; planned = measured"
	@echo "make check      install what is missing, build, run the quick tests"
	@echo "make check-all  the same with all tests"
	@echo "make install    PREFIX=/usr/local DESTDIR=: bin/snug, recipes and models in share/snug; make uninstall"
	@echo "make faults-all every fault of every command, also under the sanitizers (many minutes)"
	@echo "make deps       install what is missing (Debian packages; CUDA=1: also nvcc, into build/cuda-toolkit)"
	@echo "make fuzz SECONDS=60   every reader of files under libFuzzer (clang)"
	@echo "make tsan       the threaded parts under ThreadSanitizer"
	@echo "make valgrind   small runs under memcheck"
	@echo "make lint       clang-tidy and cppcheck"
	@echo "make rooms      check who includes whom (part of check)"
	@echo "make compile_commands.json   for editors"
	@echo "switches: CUDA=1  MPI=1  DEBUG=1  FAULTS=1  WERROR=1  V=1  ASSETS=DIR"

snug: $(if $(filter 1,$(FAULTS)),$(F),$(B))/snug
	@cmp -s $< $@ || cp -f --remove-destination $< $@

# Nothing is compiled while a library is missing: deps.sh, which may install it, says what to do.
libs-there:
ifneq ($(MISSING),)
	@$(PROBE) tools/deps.sh $(STAMP) --no-install
endif

$(B)/snug: $(OBJ) $(B)/src/cli/main.c.o
	$(call note,LD,snug)
	$(Q)$(LDALL)

$(B)/%.c.o: %.c $(STAMP) | libs-there
	@mkdir -p $(@D)
	$(call note,CC,$<)
	$(Q)$(CCALL)

# The fault flavour differs in the files that have a hook; the others are those of the flavour without.
$(F)/snug: $(HOOKED:%=$(F)/%.o) $(filter-out $(HOOKED:%=$(B)/%.o),$(OBJ) $(B)/src/cli/main.c.o)
	$(call note,LD,snug that can be made to fail)
	$(Q)$(LDALL)

$(F)/%.c.o: %.c $(STAMP) | libs-there
	@mkdir -p $(@D)
	$(call note,CC,$< with faults)
	$(Q)$(CCALL) -DFAULTS=1

# One binary per folder of tests.
TEST_BASE := $(sort $(wildcard tests/*.c))
define TEST_RULE
$(B)/test-$(1): $(patsubst %,$(B)/%.o,$(sort $(wildcard tests/$(1)/*.c)) $(TEST_BASE)) $(OBJ)
	$$(call note,LD,test-$(1))
	$$(Q)$$(LDALL)
endef
$(foreach t,$(TESTS),$(eval $(call TEST_RULE,$(t))))
$(B)/tests/%.c.o: C_FLAGS += -I.

# The GPU's kernels and tests on the processor.
ifeq ($(CUDA),0)
include tests/cuda_on_host/host.mk
endif

# Benches written in C: make build/cuda0-debug0/bench-load_speed
$(B)/bench-%: $(B)/bench/%.c.o $(OBJ)
	$(call note,LD,bench-$*)
	$(Q)$(LDALL)

# Counts what a whole process allocates: see tests/budget/test_allocations.c.
$(B)/count_allocations.so: tests/preload/count_allocations.c $(STAMP) | libs-there
	@mkdir -p $(@D)
	$(call note,LD,count_allocations.so)
	$(Q)$(CC) -std=c11 -D_GNU_SOURCE -O2 -Wall -Wextra -shared -fPIC -o $@ $< -ldl

# Stands for the driver's NVML in tests/monitor: fixed readings; and one that has hardly any calls.
$(B)/fake_nvml.so $(B)/bare_nvml.so: tests/preload/fake_nvml.c $(STAMP) | libs-there
	@mkdir -p $(@D)
	$(call note,LD,$(@F))
	$(Q)$(CC) -std=c11 -D_GNU_SOURCE -O2 -Wall -Wextra $(if $(filter bare%,$(@F)),-DBARE) -shared -fPIC -o $@ $<

# The quick set leaves the GPU's kernels out: they take most of a minute to compile.
QUICKBIN = $(filter-out %/test-cuda-host,$(TESTBIN))
TESTLIBS = $(B)/count_allocations.so $(B)/fake_nvml.so $(B)/bare_nvml.so
test-bins: $(TESTBIN) $(TESTLIBS)

DEPS = $(PROBE) tools/deps.sh $(STAMP)
deps:
	@$(DEPS) $(if $(filter deps,$(MAKECMDGOALS)),optional) $(if $(filter 1,$(MPI)),mpi) \
	    $(if $(filter check-all,$(MAKECMDGOALS)),$(CXX_IS:%=cxx=%)) $(if $(filter 1,$(CUDA)),cuda=$(NVCC):$(CUDA_TOOLKIT))

demo: deps
	@$(MAKE) --no-print-directory snug
	@tools/demo.sh

CHECK = ASSETS=$(call quote,$(ASSETS)) SNUG=$(B)/snug FAKES=$(B) DEBUG=$(DEBUG) CUDA=$(CUDA) MPI=$(MPI) \
        FAULTY=$(call quote,$(CURDIR)/$(F)/snug) PRELOAD=$(if $(filter 0,$(DEBUG)),$(B)/count_allocations.so) \
        CC=$(call quote,$(CC)) tools/check.sh
check: deps
	@$(MAKE) --no-print-directory $(B)/snug $(F)/snug $(QUICKBIN) $(TESTLIBS)
	@QUICK=1 $(CHECK) $(QUICKBIN)

check-all: deps
	@$(MAKE) --no-print-directory $(B)/snug $(F)/snug test-bins
	@$(CHECK) $(TESTBIN)

faults-all: deps
	@for d in 0 1; do b=build/cuda$(CUDA)-debug$$d; \
	    $(MAKE) --no-print-directory DEBUG=$$d $$b-faults1/snug $$b/test-faults && \
	    VERBOSE=1 FAULTS_ALL=1 FAULTY="$$PWD/$$b-faults1/snug" $$b/test-faults || exit 1; done

rooms:
	@tools/rooms.sh

# An installed snug finds recipes and models by where it stands itself: cli/share.c.
install: snug
	@tools/install.sh snug "$(DESTDIR)$(PREFIX)"
uninstall:
	@tools/install.sh --remove "$(DESTDIR)$(PREFIX)"

compile_commands.json: Makefile $(STAMP)
	@tools/compile_commands.sh "$(CC) $(C_FLAGS)" $(SRC) > $@

format:
	clang-format -i $$(git ls-files '*.c' '*.h')

clean:
	rm -rf build snug

-include $(shell find $(B) $(F) build/fuzz -name '*.d' 2>/dev/null)
