# fuzz.mk - the readers of files under libFuzzer (`make fuzz SECONDS=60`), and their kept files replayed by `make check`.
#
# A target is one file, fuzz/fuzz_NAME.c; its kept inputs are fuzz/corpus/NAME, its words fuzz/NAME.dict (optional).
SECONDS      ?= 60
FUZZ_CC      ?= clang
FUZZ_NAMES   := $(sort $(patsubst fuzz/fuzz_%.c,%,$(wildcard fuzz/fuzz_*.c)))
FUZZ_SRC     := $(foreach r,base ir model data store amr,$(sort $(wildcard src/$(r)/*.c))) $(sort $(wildcard src/cli/options*.c \
                src/reason/answer*.c src/reason/judge*.c src/reason/prompts.c src/reason/pipeline.c src/reason/journal.c))
FUZZ_B       := build/fuzz
FUZZ_BIN     := $(FUZZ_NAMES:%=$(FUZZ_B)/fuzz-%)
FUZZ_CHECKS  := address,undefined,float-cast-overflow
FUZZ_CFLAGS  := -std=c11 -D_GNU_SOURCE -Isrc -I. -g -O1 -fno-omit-frame-pointer -pthread -Wall -Wextra \
                -Wno-unused-parameter -fsanitize=fuzzer-no-link,$(FUZZ_CHECKS) -fno-sanitize-recover=all -DDEBUG=1 -DFUZZING

.PHONY: fuzz fuzz-bins
fuzz:
	@tools/deps.sh fuzz
	@$(MAKE) --no-print-directory -j2 fuzz-bins
	@fuzz/run.sh $(SECONDS) $(FUZZ_BIN)

fuzz-bins: $(FUZZ_BIN)

$(FUZZ_B)/%.c.o: %.c
	@mkdir -p $(@D)
	$(FUZZ_CC) $(FUZZ_CFLAGS) -MMD -MP -c -o $@ $<

$(FUZZ_B)/fuzz-%: $(FUZZ_B)/fuzz/fuzz_%.c.o $(FUZZ_B)/fuzz/fuzz.c.o $(FUZZ_B)/fuzz/driver.c.o $(FUZZ_SRC:%=$(FUZZ_B)/%.o)
	$(FUZZ_CC) -pthread -fsanitize=fuzzer,$(FUZZ_CHECKS) -o $@ $^ $(filter-out -lopenblas,$(LDLIBS))

# The same targets without libFuzzer: one more test binary.
$(B)/fuzz/%.c.o: CFLAGS += -I.
$(B)/test-fuzz: $(patsubst %,$(B)/%.o,$(sort $(wildcard fuzz/fuzz_*.c)) fuzz/fuzz.c fuzz/replay.c) $(OBJ)
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)
TESTBIN += $(B)/test-fuzz

.SECONDARY:
