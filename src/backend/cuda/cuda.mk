# cuda.mk - how the GPU's room is built; read by the Makefile when CUDA=1.
#
#   CUDA_HOME=DIR    the toolkit (nvcc, headers, the static runtime); default: /usr/local/cuda, else that of the nvcc on
#                    the path, else build/cuda-toolkit, which `make deps CUDA=1` fills where there is none
#   CUDA_ARCHS=...   compute capabilities, "90" or "80 90"; native: that of the card that is here (90 when there is none);
#                    all: 75 80 86 89 90 100 120. Each gets machine code; the newest also PTX for cards to come.
#   make cuda-resources   fails when a kernel uses stack or spills registers
#   make cuda-resources-80   the same of sparse attention, compiled for 8.0
#
# The driver, cuBLASLt and cuDNN are opened at run time, so the binary starts without them.

CUDA_TOOLKIT := build/cuda-toolkit
CUDA_HOME    ?= $(patsubst %/bin/nvcc,%,$(firstword $(wildcard /usr/local/cuda/bin/nvcc) $(shell command -v nvcc) $(CUDA_TOOLKIT)/bin/nvcc))
CUDA_ARCHS   ?= native
NVCC         := $(CUDA_HOME)/bin/nvcc
CUDA_LIB     := $(or $(firstword $(wildcard $(CUDA_HOME)/lib64 $(CUDA_HOME)/lib)),$(CUDA_HOME)/lib)

# 9.0 is built as 9.0a, which alone has Hopper's matrix instructions.
CUDA_NATIVE := $(subst .,,$(firstword $(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | grep -E '^[0-9]+\.[0-9]+$$')))
cuda_archs  := $(patsubst native,$(or $(CUDA_NATIVE),90),$(patsubst all,75 80 86 89 90 100 120,$(CUDA_ARCHS)))
cuda_code    = $(patsubst 90,90a,$(1))
cuda_newest := $(lastword $(cuda_archs))
CUDA_GENCODE := $(foreach a,$(cuda_archs),-gencode arch=compute_$(call cuda_code,$(a)),code=sm_$(call cuda_code,$(a))) \
                -gencode arch=compute_$(cuda_newest),code=compute_$(cuda_newest)

NVCCFLAGS := -std=c++17 -O3 -Isrc --generate-line-info -Xptxas -v,-warn-spills $(CUDA_GENCODE) \
             -Xcompiler -Wall$(,)-Wextra$(,)-Wno-unused-parameter$(,)-Wno-missing-field-initializers$(,)-fno-math-errno$(,)-fno-threadsafe-statics
NVCCFLAGS += $(if $(filter 90,$(cuda_archs)),-DHAVE_SM90A)
NVCCFLAGS += $(if $(filter 1,$(WERROR)),-Werror all-warnings -Xcompiler -Werror)

CUDA_CU   := $(sort $(wildcard src/backend/cuda/*.cu))
LIB       += $(sort $(wildcard src/backend/cuda/*.c)) $(CUDA_CU)
C_FLAGS   += -DHAVE_CUDA -isystem $(CUDA_HOME)/include
LINK_LIBS += -L$(CUDA_LIB) -lcudart_static -lrt -ldl -lpthread

# Where cuBLASLt and cuDNN are looked for beside the system's own paths.
FLAGS_cublas.c := -DCUDA_LIBRARIES='"$(if $(filter-out /%,$(CUDA_LIB)),$(CURDIR)/)$(CUDA_LIB)"' \
                  -DCUDA_WHEELS='"$(CURDIR)/$(CUDA_TOOLKIT)/lib"'
FLAGS_cuda_machine.c := $(FLAGS_cublas.c)
FLAGS_cudnn_graph.c := $(FLAGS_cublas.c)

# A compiler of kernels takes up to a gigabyte: no more of them at once than memory holds.
JOBS ?= $(shell awk -v cores="$$(nproc)" '/^MemAvailable/ { most = int($$2 / 1048576) } \
                  END { print most < 1 ? 1 : most < cores ? most : cores }' /proc/meminfo)

.PHONY: cuda-nvcc
cuda-nvcc:
	@test -x $(NVCC) || { echo "CUDA=1 needs nvcc and there is none at $(NVCC): make deps CUDA=1 fetches it, or name" \
	    "the toolkit with CUDA_HOME=DIR" >&2; exit 1; }
$(LIB:%=$(B)/%.o): | cuda-nvcc

# Objects are made again when compiler or flags change: they depend on a file that holds both, written when they differ.
CUDA_STAMP := $(B)/nvcc.txt
CUDA_IS    := $(strip $(NVCC) $(shell $(NVCC) --version 2>/dev/null | tail -n 1) $(NVCCFLAGS))
ifneq ($(CUDA_IS),$(strip $(file <$(CUDA_STAMP))))
$(shell mkdir -p $(B))$(file >$(CUDA_STAMP),$(CUDA_IS))
endif

# The compiler's resource report is kept beside the object; its remaining lines (warnings, errors) are shown.
$(B)/%.cu.o: %.cu $(CUDA_STAMP)
	@mkdir -p $(@D)
	$(call note,NVCC,$<)
	$(Q)$(NVCC) $(NVCCFLAGS) -MMD -MP -MF $(@:.o=.d) -MT $@ -c -o $@ $< 2>$(@:.o=.resources) || \
	    { cat $(@:.o=.resources) >&2; rm -f $@ $(@:.o=.resources); exit 1; }
	@grep -iE 'warning|error' $(@:.o=.resources) >&2 || true

CUDA_SPILLS = awk '/Compiling entry function/ { kernel = $$0; gsub(/.*function .|. for .*/, "", kernel); kernels++ } \
              /bytes stack frame/ && ($$1 || $$5 || $$9) { print FILENAME ": " kernel ": " $$0; bad++ } \
              END { print kernels + 0 " kernels, " bad + 0 " with stack or spills"; exit bad > 0 || !kernels }'
.PHONY: cuda-resources cuda-resources-80
cuda-resources: $(CUDA_CU:%=$(B)/%.o)
	@$(CUDA_SPILLS) $(CUDA_CU:%=$(B)/%.resources)

# The same of the kernels of sparse attention for 8.0, where registers are short: compiled for that alone.
CUDA_SPARSE := $(filter %/attend.cu %/attend_grad.cu %/gate.cu %/gathered.cu %/gathered_grad.cu %/index_gathered.cu \
                        %/index_loss.cu %/index_scores.cu %/index_tiles.cu %/mask.cu %/select.cu %/select_ranked.cu \
                        %/selected.cu %/selected_few.cu,$(CUDA_CU))
-include $(CUDA_SPARSE:%=$(B)/%.resources-80.d)
cuda-resources-80: $(CUDA_SPARSE:%=$(B)/%.resources-80)
	@$(CUDA_SPILLS) $^
$(B)/%.cu.resources-80: %.cu $(CUDA_STAMP)
	@mkdir -p $(@D)
	$(call note,NVCC,$< for 8.0)
	$(Q)$(NVCC) -std=c++17 -O3 -Isrc -Xptxas -v -gencode arch=compute_80,code=sm_80 -MMD -MP -MF $@.d -MT $@ -cubin \
	    -o /dev/null $< 2>$@ || { cat $@ >&2; rm -f $@; exit 1; }

# bench/gpu_attend_sweep.cu: every cut of the attention kernels, checked and timed on the card that is here.
SWEEP_CU := $(filter %/attend.cu %/attend_grad.cu %/attend_delta.cu %/attend_plain.cu,$(CUDA_CU))
.PHONY: attend-sweep
attend-sweep: build/attend-sweep
build/attend-sweep: $(B)/bench/gpu_attend_sweep.cu.o $(SWEEP_CU:%=$(B)/%.o)
	$(call note,LD,attend-sweep)
	$(Q)$(NVCC) -o $@ $^
