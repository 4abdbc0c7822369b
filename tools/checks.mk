# checks.mk - what looks over the code beside the tests: races, memory, and two readers of sources.
.PHONY: tsan valgrind lint lint-now

# ThreadSanitizer: the team of threads, the parts that share data between threads, whole small runs on three threads.
ifeq ($(TSAN),1)
C_FLAGS    += -O1 -fsanitize=thread
LINK_FLAGS += -fsanitize=thread
endif
TSAN_B := build/tsan
tsan: deps
	@$(MAKE) --no-print-directory B=$(TSAN_B) TSAN=1 $(TSAN_B)/snug $(TSAN_B)/test-base $(TSAN_B)/test-data
	@tools/tsan.sh $(TSAN_B)

# memcheck on whole small runs of the ordinary build: no error, nothing lost.
valgrind:
	@$(DEPS) valgrind
	@$(MAKE) --no-print-directory $(B)/snug
	@tools/small_run.sh valgrind -q --error-exitcode=9 --leak-check=full --show-leak-kinds=all \
	    --errors-for-leak-kinds=all $(B)/snug
	@echo "valgrind: no error, nothing lost"

# clang-tidy (.clang-tidy says which checks, and why not the others) and cppcheck, over src/ without CUDA.
lint:
	@$(DEPS) lint
	@$(MAKE) --no-print-directory lint-now
lint-now:
	@tools/lint.sh "$(filter-out -W%,$(C_FLAGS))" $(SRC)
