# checks.mk - what looks over the code beside the tests: races, memory, and two readers of sources.
.PHONY: tsan valgrind lint

# ThreadSanitizer: the team of threads, the parts that share data between threads, and whole small runs on three threads.
ifeq ($(TSAN),1)
CFLAGS  += -O1 -fsanitize=thread
LDFLAGS += -fsanitize=thread
endif
TSAN_B := build/tsan
tsan: deps
	@$(MAKE) --no-print-directory -j2 B=$(TSAN_B) TSAN=1 $(TSAN_B)/snug $(TSAN_B)/test-base $(TSAN_B)/test-data
	@tools/tsan.sh $(TSAN_B)

# memcheck on whole small runs of the ordinary build: no error, nothing lost.
valgrind: deps
	@tools/deps.sh valgrind
	@$(MAKE) --no-print-directory -j2 $(B)/snug
	@tools/small_run.sh valgrind -q --error-exitcode=9 --leak-check=full --show-leak-kinds=all --errors-for-leak-kinds=all \
	    $(B)/snug
	@echo "valgrind: no error, nothing lost"

# clang-tidy (.clang-tidy says which checks, and why not the others) and cppcheck, over src/ without CUDA.
lint:
	@tools/deps.sh lint
	@tools/lint.sh "$(filter-out -W%,$(CFLAGS))" $(SRC)
