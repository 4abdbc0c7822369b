/* cuda_int.h - what the files of the frame (device, memory, machine, products) share. */
#ifndef BACKEND_CUDA_CUDA_INT_H
#define BACKEND_CUDA_CUDA_INT_H

#include "backend/cuda/cuda.h"

/* ---- cuda_memory.c: pools, and the way in and out of them ---- */
bool cuda_memory_open(CudaBackend *c, Err *e);
void cuda_memory_close(CudaBackend *c);
void *cuda_pool(Backend *b, Pool kind, int64_t bytes, Err *e);
void cuda_release(Backend *b, Pool kind);
int64_t cuda_trim(Backend *b, int64_t at, int64_t bytes);
bool cuda_restore(Backend *b, Err *e);
void cuda_put(Backend *b, void *device, const void *host, int64_t bytes);
void cuda_get(Backend *b, void *host, const void *device, int64_t bytes);
void cuda_fetch(Backend *b, const void *device, int64_t bytes, StageFn *fn, void *context);
void cuda_store(Backend *b, void *device, int64_t bytes, StageFn *fn, void *context);
void cuda_note(Backend *b, int slot, const void *device, int64_t bytes);
bool cuda_read_note(Backend *b, int slot, void *host, int64_t bytes, Err *e);
void cuda_move(Backend *b, Queue q, void *dst, const void *src, int64_t bytes);

/* ---- cuda_disk.c: the disk pool ---- */
void *cuda_disk_open(CudaBackend *c, int64_t bytes, Err *e);
void cuda_disk_close(CudaBackend *c);
bool cuda_disk_link(Backend *b, const void *at, const char *path, int64_t file_at, int64_t bytes, Err *e);
bool cuda_disk_settle(Backend *b, int64_t *own_bytes, Err *e);
bool cuda_disk_holds(const CudaBackend *c, const void *p);
void cuda_disk_queue(Backend *b, Queue q, void *to, const void *from, int64_t bytes); /* in its queue's turn */
void cuda_disk_move(Backend *b, void *to, const void *from, int64_t bytes);           /* now; nothing is queued */
void cuda_disk_check(CudaBackend *c); /* what failed on the driver's thread becomes the backend's error */

/* ---- cuda_machine.c: a card as data ---- */
void cuda_machine_describe(CudaBackend *c, Machine *m);
void cuda_facts(Backend *b, DeviceFacts *f);

/* Where libraries are looked for beside the system's own paths: the toolkit, and what `make deps CUDA=1` brought. */
#ifndef CUDA_LIBRARIES
#define CUDA_LIBRARIES "/usr/local/cuda/lib64"
#endif
#ifndef CUDA_WHEELS
#define CUDA_WHEELS CUDA_LIBRARIES
#endif

/* ---- cuda_nvml.c: the driver's management library ---- */
int64_t cuda_nvml_used_bytes(const char *bus_id); /* of the card's memory, by anybody; -1: unknown */
void cuda_nvml_driver(char *text, int size, const char *bus_id);
void cuda_nvml_facts(DeviceFacts *f, const char *bus_id); /* holders and slices */

/* ---- cuda_range.c ---- */
void cuda_ranges_open(CudaBackend *c);

/* ---- cublas.c ---- */
bool cuda_products_open(CudaBackend *c, Err *e);
void cuda_products_close(CudaBackend *c);
void cuda_products_version(const CudaBackend *c, char *text, int size); /* algorithms hold for this one only */
int64_t cuda_choices(Backend *b, MachineChoice *out, int64_t room);
void cuda_choose(Backend *b, const MachineChoice *list, int64_t n);

/* ---- cudnn.c ---- */
void cuda_attention_close(CudaBackend *c);

/* ---- product.cu: do this build's kernels run on the current card? ---- */
cudaError_t cuda_kernels_run_here(void);

#endif
