# snug - one file builds everything. `make help` lists the targets.
#
# Switches: CUDA=1 (the GPU backend), MPI=1 (ranks from mpirun), DEBUG=1 (ASan, UBSan), FAULTS=1 (calls that can be made to fail: base/fault.h), WERROR=1,
# ASSETS=DIR (real data for tests). Each flavour has its own build folder.

, := ,
CUDA   ?= 0
MPI    ?= 0
DEBUG  ?= 0
FAULTS ?= 0
WERROR ?= 0
ASSETS ?= ../shared/assets
CC     ?= cc
B      := build/cuda$(CUDA)-debug$(DEBUG)$(if $(filter 1,$(MPI)),-mpi1)
F      := $(B)-faults1

# The rooms, bottom up; rooms.txt says who may include whom.
ROOMS := base ir model plan backend backend/cpu exec data store obs comm/mpi gen train reason grpo cli
SRC   := $(foreach r,$(ROOMS),$(sort $(wildcard src/$(r)/*.c)))
LIB   := $(filter-out src/cli/main.c,$(SRC))
TESTS := $(sort $(notdir $(patsubst %/,%,$(dir $(wildcard tests/*/test_*.c)))))

CFLAGS   := -std=c11 -D_GNU_SOURCE -Isrc -g -fno-math-errno -pthread \
            -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wno-unused-parameter
CFLAGS   += $(if $(filter 1,$(WERROR)),-Werror)
CFLAGS   += $(if $(filter 1,$(DEBUG)),-O1 -fsanitize=address -fsanitize=undefined -fno-omit-frame-pointer -DDEBUG=1,-O2)
LDFLAGS  := -pthread $(if $(filter 1,$(DEBUG)),-fsanitize=address -fsanitize=undefined)
# Compressed data files are read where zlib and libzstd are there: only src/data/unpack.c sees them.
has      = $(shell echo '\#include <$(1)>' | $(CC) -E -x c - >/dev/null 2>&1 && echo $(2))
CFLAGS_unpack.c := $(call has,zlib.h,-DHAVE_ZLIB) $(call has,zstd.h,-DHAVE_ZSTD)
PACKERS  := $(call has,zlib.h,-lz) $(call has,zstd.h,-lzstd)
# Small libraries are linked statically, so that a built binary runs on another machine.
LDLIBS   := -Wl,-Bstatic -lopenblas -ljansson -lyaml -lpcre2-8 -lutf8proc $(PACKERS) -Wl,-Bdynamic -lm -ldl

# Only src/comm/mpi sees it.
ifeq ($(MPI),1)
CFLAGS_ranks.c := -DHAVE_MPI $(shell mpicc --showme:compile)
LDLIBS += $(shell mpicc --showme:link)
endif

.DEFAULT_GOAL := all

# The GPU: sources, compiler and flags of its room.
ifeq ($(CUDA),1)
include src/backend/cuda/cuda.mk
endif

OBJ     := $(LIB:%=$(B)/%.o)
TESTBIN := $(TESTS:%=$(B)/test-%)
HOOKED  := $(shell grep -l '"base/fault.h"' $(SRC))

.PHONY: all snug deps demo check faults-all test-bins rooms clean help format

all: snug
include fuzz/fuzz.mk tools/checks.mk

help:
	@echo "make            build ./snug"
	@echo "make demo       install what is missing, build, plan, train, reason; planned = measured"
	@echo "make check      install what is missing, build, run all tests"
	@echo "make faults-all every fault of every command, also under the sanitizers (many minutes; check takes a spread)"
	@echo "make deps       install what is missing (Debian packages; CUDA=1: nvcc and its libraries into build/cuda-toolkit)"
	@echo "make fuzz SECONDS=60   every reader of files under libFuzzer (clang)"
	@echo "make tsan       the threaded parts under ThreadSanitizer"
	@echo "make valgrind   small runs under memcheck"
	@echo "make lint       clang-tidy and cppcheck"
	@echo "make rooms      check who includes whom (part of check)"
	@echo "make compile_commands.json   for editors"
	@echo "switches: CUDA=1  MPI=1  DEBUG=1  FAULTS=1  WERROR=1  ASSETS=DIR"

snug: $(if $(filter 1,$(FAULTS)),$(F),$(B))/snug
	@cmp -s $< $@ || cp -f --remove-destination $< $@

$(B)/snug: $(OBJ) $(B)/src/cli/main.c.o
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

$(B)/%.c.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(CFLAGS_$(notdir $<)) -MMD -MP -c -o $@ $<

# The fault flavour differs in the files that have a hook; the others are those of the flavour without.
$(F)/snug: $(HOOKED:%=$(F)/%.o) $(filter-out $(HOOKED:%=$(B)/%.o),$(OBJ) $(B)/src/cli/main.c.o)
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

$(F)/%.c.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(CFLAGS_$(notdir $<)) -DFAULTS=1 -MMD -MP -c -o $@ $<

# One binary per folder of tests.
define TEST_RULE
$(B)/test-$(1): $(patsubst %,$(B)/%.o,$(sort $(wildcard tests/$(1)/*.c))) $(B)/tests/test.c.o $(B)/tests/snug.c.o $(B)/tests/world.c.o $(OBJ)
	$$(CC) $$(LDFLAGS) -o $$@ $$^ $$(LDLIBS)
endef
$(foreach t,$(TESTS),$(eval $(call TEST_RULE,$(t))))
$(B)/tests/%.c.o: CFLAGS += -I.

# Benches written in C: make build/cuda0-debug0/bench-load_speed
$(B)/bench-%: $(B)/bench/%.c.o $(OBJ)
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

# Counts what a whole process allocates: see tests/budget/test_allocations.c.
$(B)/count_allocations.so: tests/preload/count_allocations.c
	@mkdir -p $(@D)
	$(CC) -std=c11 -D_GNU_SOURCE -O2 -Wall -Wextra -shared -fPIC -o $@ $< -ldl

test-bins: $(TESTBIN) $(B)/count_allocations.so

deps:
	@MPI=$(MPI) tools/deps.sh $(if $(filter 1,$(CUDA)),cuda $(NVCC) $(CUDA_TOOLKIT))

demo: deps
	@$(MAKE) --no-print-directory snug
	@tools/demo.sh

check: deps
	@$(MAKE) --no-print-directory -j2 $(B)/snug $(F)/snug test-bins
	@ASSETS=$(ASSETS) SNUG=$(B)/snug CUDA=$(CUDA) MPI=$(MPI) FAULTY=$(CURDIR)/$(F)/snug PRELOAD=$(if $(filter 0,$(DEBUG)),$(CURDIR)/$(B)/count_allocations.so) tools/check.sh $(TESTBIN)

faults-all: deps
	@for d in 0 1; do b=build/cuda$(CUDA)-debug$$d; \
	    $(MAKE) --no-print-directory -j2 DEBUG=$$d $$b-faults1/snug $$b/test-faults && \
	    VERBOSE=1 FAULTS_ALL=1 FAULTY=$(CURDIR)/$$b-faults1/snug $$b/test-faults || exit 1; done

rooms:
	@tools/rooms.sh

compile_commands.json: Makefile
	@tools/compile_commands.sh "$(CC) $(CFLAGS)" $(SRC) > $@

format:
	clang-format -i $$(git ls-files '*.c' '*.h')

clean:
	rm -rf build snug

-include $(shell find build -name '*.d' 2>/dev/null)
