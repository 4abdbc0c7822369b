# host.mk - test-cuda-host: the tests of tests/cuda with the GPU's room (kernels, their launchers, the frame around
# them) compiled for the processor, where block.h plays the kernels. Read by the Makefile when CUDA=0; needs a C++
# compiler and no toolkit. cublas.c and cudnn*.c, which speak to libraries, are replaced by libraries.c.
HOST     := $(B)/cuda-host
CXX_IS   := $(if $(filter default,$(origin CXX)),$(subst clang,clang++,$(subst gcc,g++,$(CC:cc=c++))),$(CXX))
# Tests of the product library's choices, and of whole runs: they need it, or take minutes.
HOST_NOT := $(addprefix tests/cuda/test_,choices.c chain.c generate.c loop.c losses.c)
HOST_CU  := $(sort $(wildcard src/backend/cuda/*.cu tests/cuda_on_host/*.cu))
HOST_C   := $(filter-out %/cublas.c %/cudnn.c %/cudnn_graph.c,$(sort $(wildcard src/backend/cuda/*.c))) \
            src/backend/backend.c $(filter-out $(HOST_NOT),$(sort $(wildcard tests/cuda/*.c tests/cuda_on_host/*.c)))
HOST_CXX := $(sort $(wildcard tests/cuda_on_host/*.cpp))
HOST_CUH := $(patsubst src/%,$(HOST)/headers/%,$(filter-out %/ptx.cuh,$(wildcard src/backend/cuda/*.cuh)))
HOST_OBJ := $(patsubst %,$(HOST)/%.o,$(HOST_CU) $(HOST_C) $(HOST_CXX))

# A product and a sum are rounded apart, as the tests' reference rounds them.
HOST_FLAGS := -std=c++17 -D_GNU_SOURCE -g1 -fno-math-errno -ffp-contract=off -fno-strict-aliasing -I. -Isrc \
              -Wall -Wextra -Wno-unused-parameter -Wno-unknown-pragmas -Wno-missing-field-initializers \
              $(if $(filter 1,$(WERROR)),-Werror) \
              $(if $(filter 1,$(DEBUG)),-O1 $(SANITIZE) -fno-omit-frame-pointer,-O2) $(CPPFLAGS) $(CXXFLAGS)

$(HOST)/%.c.o: %.c $(STAMP) | libs-there
	@mkdir -p $(@D)
	$(call note,CC,$< for kernels on the processor)
	$(Q)$(CC) -Itests/cuda_on_host $(C_FLAGS) -I. -DHAVE_CUDA=1 -DCUDA_ON_HOST=1 $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<
$(HOST)/%.cpp.o: %.cpp $(STAMP)
	@mkdir -p $(@D)
	$(call note,CXX,$<)
	$(Q)$(CXX_IS) $(HOST_FLAGS) -MMD -MP -c -o $@ $<
$(HOST)/headers/%.cuh: src/%.cuh tests/cuda_on_host/translate.awk
	@mkdir -p $(@D)
	$(Q)awk -f tests/cuda_on_host/translate.awk $< > $@
$(HOST)/%.cu.o: %.cu tests/cuda_on_host/translate.awk $(STAMP) | $(HOST_CUH)
	@mkdir -p $(@D)
	$(call note,CXX,$<)
	$(Q)awk -f tests/cuda_on_host/translate.awk $< | $(CXX_IS) -Itests/cuda_on_host -I$(HOST)/headers $(HOST_FLAGS) \
	    -Wno-sign-compare -Wno-unused-variable -include tests/cuda_on_host/device.h \
	    -MMD -MP -MF $(@:.o=.d) -MT $@ -c -o $@ -x c++ -

$(B)/test-cuda-host: $(HOST_OBJ) $(TEST_BASE:%=$(B)/%.o) $(filter-out $(B)/src/backend/backend.c.o,$(OBJ))
	$(call note,LD,test-cuda-host)
	$(Q)$(CXX_IS) $(LINK_FLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(LIBS) $(LINK_LIBS) $(LDLIBS)
ifneq ($(shell command -v $(CXX_IS)),)
TESTBIN += $(B)/test-cuda-host
else
test-bins: no-cuda-host
.PHONY: no-cuda-host
no-cuda-host:
	@echo "test-cuda-host is left out: there is no C++ compiler $(CXX_IS) (CXX=...)"
endif
