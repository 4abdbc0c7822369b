/* cuda_graph.c - CUDA graphs: how a play is issued, captured and replayed.
 *
 * The first play of a program runs step by step: code is loaded, products are chosen. The second is captured into
 * a graph, which is uploaded and launched; from then on replay launches it. A capture that fails has run nothing:
 * the calls it was made of are kept while it lasts and issued again, and that program stays step by step. Side
 * queues fork from the compute queue at a play's begin and join it at its end. */
#include <stdio.h>
#include <string.h>

#include "backend/cuda/cuda_int.h"
#include "base/log.h"

/* ---- what a play is made of ---- */

static void keep_call(CudaBackend *c, CudaCall call) {
    if (!c->keeps_calls) return;
    c->call = mem_grow(c->call, &c->cap_calls, c->n_calls + 1, sizeof *c->call);
    c->call[c->n_calls++] = call;
}

void cuda_signal(Backend *b, Queue q, int event) {
    CudaBackend *c = cuda_backend(b);
    keep_call(c, (CudaCall){CUDA_CALL_SIGNAL, q, event, NULL});
    if (event >= c->n_events) {
        c->event = mem_grow(c->event, &c->cap_events, event + 1, sizeof *c->event);
        memset(c->event + c->n_events, 0, (size_t)(event + 1 - c->n_events) * sizeof *c->event);
        c->n_events = event + 1;
    }
    if (!c->event[event] &&
        !cuda_ok(b, cudaEventCreateWithFlags(&c->event[event], cudaEventDisableTiming), "signal"))
        return;
    cuda_ok(b, cudaEventRecord(c->event[event], c->stream[q]), "signal");
}

void cuda_wait(Backend *b, Queue q, int event) {
    CudaBackend *c = cuda_backend(b);
    CHECK_MSG(event >= 0 && event < c->n_events, "wait for step %d, which was not signalled", event);
    keep_call(c, (CudaCall){CUDA_CALL_WAIT, q, event, NULL});
    cuda_ok(b, cudaStreamWaitEvent(c->stream[q], c->event[event], 0), "wait");
}

static void run_step(Backend *b, Queue q, const Args *a) {
    keep_call(cuda_backend(b), (CudaCall){CUDA_CALL_STEP, q, 0, a});
    cuda_functions[a->step->op](b, q, a);
    cuda_check_launch(b, op_name(a->step->op));
}

Kernel *const cuda_kernels[OP_COUNT] = {
#define OP(NAME, name, ins, outs) [OP_##NAME] = run_step,
#include "ir/ops.def"
};

/* What is issued together is kept as its steps: issued again one by one, they give the same bits. */
static void keep_steps(CudaBackend *c, Queue q, const Args *a, int n) {
    for (int i = 0; i < n; i++) keep_call(c, (CudaCall){CUDA_CALL_STEP, q, 0, &a[i]});
}

static void run_steps(Backend *b, Queue q, const Args *a, int n) {
    static KernelRun *const functions[OP_COUNT] = {
        [OP_SUM_SQUARES] = cuda_sum_squares_run, [OP_ADAMW] = cuda_adamw_run, [OP_SGD] = cuda_sgd_run};
    keep_steps(cuda_backend(b), q, a, n);
    functions[a->step->op](b, q, a, n);
    cuda_check_launch(b, op_name(a->step->op));
}

KernelRun *const cuda_runs[OP_COUNT] = {[OP_SUM_SQUARES] = run_steps, [OP_ADAMW] = run_steps, [OP_SGD] = run_steps};

static void run_joined(Backend *b, Queue q, const Args *a, int n) {
    keep_steps(cuda_backend(b), q, a, n);
    cuda_join_steps(b, q, a, n);
    cuda_check_launch(b, op_name(a->step->op));
}

const Joins cuda_joins = {.of = cuda_joins_of, .run = run_joined};

/* ---- one play ---- */

static void fork_queues(Backend *b) {
    CudaBackend *c = cuda_backend(b);
    cuda_ok(b, cudaEventRecord(c->fork, c->stream[QUEUE_COMPUTE]), "begin");
    for (int q = 1; q < QUEUE_COUNT; q++) cuda_ok(b, cudaStreamWaitEvent(c->stream[q], c->fork, 0), "begin");
}

static void join_queues(Backend *b) {
    CudaBackend *c = cuda_backend(b);
    for (int q = 1; q < QUEUE_COUNT; q++) {
        cuda_ok(b, cudaEventRecord(c->join[q], c->stream[q]), "end");
        cuda_ok(b, cudaStreamWaitEvent(c->stream[QUEUE_COMPUTE], c->join[q], 0), "end");
    }
}

static void begin_capture(CudaBackend *c, int id) {
    cudaError_t status = cudaStreamBeginCapture(c->stream[QUEUE_COMPUTE], cudaStreamCaptureModeThreadLocal);
    if (status != cudaSuccess) {
        cudaGetLastError();
        snprintf(c->graph_note, sizeof c->graph_note, "program %d cannot be captured: %s", id,
                 cudaGetErrorString(status));
        return;
    }
    c->capture_error[0] = 0;
    c->capturing = id;
}

void cuda_begin(Backend *b, int id) {
    CudaBackend *c = cuda_backend(b);
    CHECK(id >= 0 && id < MAX_PHASES && c->capturing < 0);
    CudaGraph *g = &c->graph[id];
    int play = g->plays++;
    c->keeps_calls = play < 2;
    c->n_calls = 0;
    if (play == 1 && c->error.code == ERR_NONE) begin_capture(c, id);
    fork_queues(b);
}

/* The graph of what was captured, ready to launch; false: capture_error says why not. */
static bool finish_capture(Backend *b, CudaGraph *g) {
    CudaBackend *c = cuda_backend(b);
    cudaGraph_t captured = NULL;
    cuda_ok(b, cudaStreamEndCapture(c->stream[QUEUE_COMPUTE], &captured), "ending a capture");
    if (!c->capture_error[0]) cuda_ok(b, cudaGraphInstantiate(&g->exec, captured, 0), "making a graph");
    if (!c->capture_error[0]) cuda_ok(b, cudaGraphUpload(g->exec, c->stream[QUEUE_COMPUTE]), "uploading a graph");
    if (captured) cudaGraphDestroy(captured);
    if (!c->capture_error[0]) return true;
    if (g->exec) cudaGraphExecDestroy(g->exec);
    g->exec = NULL;
    return false;
}

static void issue_again(Backend *b) {
    CudaBackend *c = cuda_backend(b);
    c->keeps_calls = false;
    fork_queues(b);
    for (int64_t i = 0; i < c->n_calls; i++) {
        CudaCall call = c->call[i];
        if (call.kind == CUDA_CALL_STEP)
            run_step(b, call.queue, call.args);
        else if (call.kind == CUDA_CALL_SIGNAL)
            cuda_signal(b, call.queue, call.event);
        else
            cuda_wait(b, call.queue, call.event);
    }
    join_queues(b);
}

void cuda_end(Backend *b, int id) {
    CudaBackend *c = cuda_backend(b);
    CudaGraph *g = &c->graph[id];
    join_queues(b);
    c->keeps_calls = false;
    if (c->capturing < 0) return;
    CHECK(c->capturing == id);
    bool ok = finish_capture(b, g);
    c->capturing = -1;
    if (ok) {
        cuda_ok(b, cudaGraphLaunch(g->exec, c->stream[QUEUE_COMPUTE]), "launching a graph");
        return;
    }
    snprintf(c->graph_note, sizeof c->graph_note, "program %d is played step by step: %s", id, c->capture_error);
    log_warn("cuda:%d: %s", c->device, c->graph_note);
    issue_again(b);
}

bool cuda_replay(Backend *b, int id) {
    CudaBackend *c = cuda_backend(b);
    CHECK(id >= 0 && id < MAX_PHASES);
    if (!c->graph[id].exec) return false;
    cuda_ok(b, cudaGraphLaunch(c->graph[id].exec, c->stream[QUEUE_COMPUTE]), "launching a graph");
    return true;
}

void cuda_drop_graphs(CudaBackend *c) {
    for (int i = 0; i < MAX_PHASES; i++) {
        if (c->graph[i].exec) cudaGraphExecDestroy(c->graph[i].exec);
        c->graph[i] = (CudaGraph){0};
    }
}
