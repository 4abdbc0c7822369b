# fuzz.mk - the readers of files under libFuzzer (`make fuzz SECONDS=60`); `make check` replays their kept files.
#
# A target is one file, fuzz/fuzz_NAME.c; its kept inputs are fuzz/corpus/NAME, its words fuzz/NAME.dict (optional).
SECONDS      ?= 60
FUZZ_CC      ?= clang
FUZZ_NAMES   := $(sort $(patsubst fuzz/fuzz_%.c,%,$(wildcard fuzz/fuzz_*.c)))
FUZZ_SRC     := $(sort $(wildcard $(patsubst %,src/%.c,base/* ir/* model/* data/* store/* amr/* cli/options* \
                cli/elsewhere cli/hydra cli/other_config cli/other_data cli/share \
                reason/answer* reason/judge* reason/prompts reason/pipeline reason/journal \
                grpo/reward* grpo/remote_api grpo/clean)))
FUZZ_B       := build/fuzz
FUZZ_BIN     := $(FUZZ_NAMES:%=$(FUZZ_B)/fuzz-%)
FUZZ_CHECKS  := address,undefined,float-cast-overflow
FUZZ_CFLAGS  := -std=c11 -D_GNU_SOURCE -Isrc -I. -g -O1 -fno-omit-frame-pointer -pthread -Wall -Wextra \
                -Wno-unused-parameter $(SOUND) -fsanitize=fuzzer-no-link,$(FUZZ_CHECKS) -fno-sanitize-recover=all \
                -DDEBUG=1 -DFUZZING

.PHONY: fuzz fuzz-bins
fuzz:
	@CC=$(FUZZ_CC) CFLAGS=$(call quote,$(C_FLAGS)) tools/deps.sh $(FUZZ_B)/libs.mk fuzz
	@$(MAKE) --no-print-directory CC=$(FUZZ_CC) STAMP=$(FUZZ_B)/libs.mk fuzz-bins
	@fuzz/run.sh $(SECONDS) $(FUZZ_BIN)

fuzz-bins: $(FUZZ_BIN)

$(FUZZ_B)/%.c.o: %.c $(STAMP) fuzz/fuzz.mk
	@mkdir -p $(@D)
	$(call note,CC,$< for libFuzzer)
	$(Q)$(FUZZ_CC) $(FUZZ_CFLAGS) -MMD -MP -c -o $@ $<

$(FUZZ_B)/fuzz-%: $(FUZZ_B)/fuzz/fuzz_%.c.o $(FUZZ_B)/fuzz/fuzz.c.o $(FUZZ_B)/fuzz/driver.c.o \
    $(FUZZ_SRC:%=$(FUZZ_B)/%.o)
	$(call note,LD,fuzz-$*)
	$(Q)$(FUZZ_CC) -pthread -fsanitize=fuzzer,$(FUZZ_CHECKS) -o $@ $^ $(LIBS) $(LINK_LIBS)

# The same targets without libFuzzer: one more test binary.
$(B)/fuzz/%.c.o: C_FLAGS += -I.
$(B)/test-fuzz: $(patsubst %,$(B)/%.o,$(sort $(wildcard fuzz/fuzz_*.c)) fuzz/fuzz.c fuzz/replay.c) $(OBJ)
	$(call note,LD,test-fuzz)
	$(Q)$(LDALL)
TESTBIN += $(B)/test-fuzz

.SECONDARY:
