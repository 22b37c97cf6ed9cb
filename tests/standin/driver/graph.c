// CUDA graphs: a capture records the work of a stream, a launch submits it again.
#include <stdlib.h>
#include <string.h>

#include "internal.h"

typedef struct CUgraph_st {
    Handle handle;
    Work **nodes;
    size_t length, room;
} Graph;

typedef struct CUgraphExec_st {
    Handle handle;
    Work **nodes;
    size_t length;
} GraphExec;

static __thread CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
static unsigned long long last_capture;

// ---- what a capture forbids ----

void break_capture(Stream *stream) {
    if (!stream->capture_broken) counts.broken_captures++;
    stream->capture_broken = 1;
}

CUresult refuse_while_capturing(Stream *stream) {
    if (!stream->capture) return CUDA_SUCCESS;
    break_capture(stream);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult check_unsafe(void) {
    CUresult result = CUDA_SUCCESS;
    if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return result;
    for (Handle *handle = handles(STREAM); handle; handle = handle->next) {
        Stream *stream = (Stream *)handle;
        if (!stream->capture || stream->capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED) continue;
        int own = pthread_equal(stream->capture_thread, pthread_self());
        int global = stream->capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
        if (own || (global && thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL)) result = refuse_while_capturing(stream);
    }
    return result;
}

CUresult check_default_stream(void) {
    CUresult result = CUDA_SUCCESS;
    for (Handle *handle = handles(STREAM); handle; handle = handle->next) {
        Stream *stream = (Stream *)handle;
        if (!stream->capture || stream->flags & CU_STREAM_NON_BLOCKING) continue;
        break_capture(stream);
        result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    return result;
}

API cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
    ENTER(ANY_TIME);
    CUstreamCaptureMode old = thread_mode;
    thread_mode = *mode;
    *mode = old;
    return CUDA_SUCCESS;
}

// ---- captures ----

static void drop_nodes(Work **nodes, size_t length) {
    for (size_t i = 0; i < length; i++) drop_work(nodes[i]);
    free(nodes);
}

void record_in_graph(Stream *stream, const Work *work) {
    Graph *graph = stream->capture;
    if (graph->length == graph->room) {
        graph->room = graph->room ? 2 * graph->room : 8;
        graph->nodes = realloc(graph->nodes, graph->room * sizeof *graph->nodes);
    }
    graph->nodes[graph->length++] = copy_of(work);
    if (work->kind == RECORD) work->record.event->captured = 0;  // an external record has a time after a launch
}

// The graph of a capture is a handle of its caller's only once the capture has ended.
void free_capture(Stream *stream) {
    if (!stream->capture) return;
    drop_nodes(stream->capture->nodes, stream->capture->length);
    free(stream->capture);
    stream->capture = NULL;
    stream->capture_broken = 0;
}

static CUresult begin(CUstream handle, CUstreamCaptureMode mode) {
    if (is_default(handle)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    Stream *stream = stream_of(handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    pthread_mutex_lock(&lock);
    CUresult refused = stream->capture ? CUDA_ERROR_ILLEGAL_STATE : CUDA_SUCCESS;
    if (!refused) {
        stream->capture = calloc(1, sizeof *stream->capture);
        stream->capture_mode = mode;
        stream->capture_broken = 0;
        stream->capture_thread = pthread_self();
        stream->capture_id = ++last_capture;
        counts.captures++;
    }
    pthread_mutex_unlock(&lock);
    return refused;
}

API cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode) {
    ENTER(IN_CONTEXT);
    return begin(handle, mode);
}

#undef cuStreamBeginCapture
API cuStreamBeginCapture(CUstream handle) {
    ENTER(IN_CONTEXT);
    return begin(handle, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

API cuStreamEndCapture(CUstream handle, CUgraph *result) {
    ENTER(IN_CONTEXT | WHEN_LOST);
    *result = NULL;
    Stream *stream = stream_of(handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    if (!stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
    int own = pthread_equal(stream->capture_thread, pthread_self());
    if (!own && stream->capture_mode != CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    if (stream->capture_broken || unless_lost(CUDA_SUCCESS)) {
        free_capture(stream);
        return unless_lost(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
    Graph *graph = new_handle(GRAPH, sizeof *graph);
    pthread_mutex_lock(&lock);
    graph->nodes = stream->capture->nodes;
    graph->length = stream->capture->length;
    free(stream->capture);
    stream->capture = NULL;
    pthread_mutex_unlock(&lock);
    *result = graph;
    return CUDA_SUCCESS;
}

static CUstreamCaptureStatus status_of(const Stream *stream) {
    if (!stream->capture) return CU_STREAM_CAPTURE_STATUS_NONE;
    return stream->capture_broken ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

API cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status) {
    ENTER(IN_CONTEXT);
    Stream *stream = stream_of(handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    pthread_mutex_lock(&lock);
    CUresult refused = is_default(handle) ? check_default_stream() : CUDA_SUCCESS;
    *status = status_of(stream);
    pthread_mutex_unlock(&lock);
    return refused;
}

#undef cuStreamGetCaptureInfo
API cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                              const CUgraphNode **dependencies, size_t *number) {
    ENTER(IN_CONTEXT);
    Stream *stream = stream_of(handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    *status = status_of(stream);
    if (id) *id = stream->capture_id;
    if (graph) *graph = stream->capture;
    if (dependencies) *dependencies = NULL;
    if (number) *number = 0;
    return CUDA_SUCCESS;
}

// ---- graphs ----

API cuGraphDestroy(CUgraph graph) {
    ENTER(WHEN_LOST);
    if (!end_handle(GRAPH, graph)) return CUDA_ERROR_INVALID_VALUE;
    drop_nodes(graph->nodes, graph->length);
    return unless_lost(CUDA_SUCCESS);
}

API cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *number) {
    ENTER(ANY_TIME);
    if (!alive(GRAPH, graph)) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; nodes && i < *number; i++)
        nodes[i] = i < graph->length ? (CUgraphNode)graph->nodes[i] : NULL;
    if (!nodes || *number > graph->length) *number = graph->length;
    return CUDA_SUCCESS;
}

API cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type) {
    ENTER(ANY_TIME);
    switch (((const Work *)node)->kind) {
    case COPY: *type = CU_GRAPH_NODE_TYPE_MEMCPY; break;
    case SET: *type = CU_GRAPH_NODE_TYPE_MEMSET; break;
    case KERNEL: *type = CU_GRAPH_NODE_TYPE_KERNEL; break;
    case RECORD: *type = CU_GRAPH_NODE_TYPE_EVENT_RECORD; break;
    default: *type = CU_GRAPH_NODE_TYPE_HOST;
    }
    return CUDA_SUCCESS;
}

static Work **copy_nodes(const Graph *graph) {
    Work **nodes = malloc((graph->length + 1) * sizeof *nodes);
    for (size_t i = 0; i < graph->length; i++) nodes[i] = copy_of(graph->nodes[i]);
    return nodes;
}

static CUresult instantiate(CUgraphExec *result, CUgraph graph) {
    if (!alive(GRAPH, graph)) return CUDA_ERROR_INVALID_VALUE;
    GraphExec *exec = new_handle(GRAPH_EXEC, sizeof *exec);
    exec->nodes = copy_nodes(graph);
    exec->length = graph->length;
    *result = exec;
    return CUDA_SUCCESS;
}

API cuGraphInstantiateWithFlags(CUgraphExec *result, CUgraph graph, unsigned long long flags) {
    ENTER(IN_CONTEXT);
    (void)flags;
    return instantiate(result, graph);
}

#undef cuGraphInstantiate
API cuGraphInstantiate(CUgraphExec *result, CUgraph graph, CUgraphNode *node, char *log, size_t size) {
    ENTER(IN_CONTEXT);
    if (node) *node = NULL;
    if (log && size) *log = 0;
    return instantiate(result, graph);
}

API cuGraphInstantiate_v2(CUgraphExec *result, CUgraph graph, CUgraphNode *node, char *log, size_t size) {
    ENTER(IN_CONTEXT);
    if (node) *node = NULL;
    if (log && size) *log = 0;
    return instantiate(result, graph);
}

API cuGraphExecDestroy(CUgraphExec exec) {
    ENTER(WHEN_LOST);
    if (!end_handle(GRAPH_EXEC, exec)) return CUDA_ERROR_INVALID_VALUE;
    drop_nodes(exec->nodes, exec->length);
    return unless_lost(CUDA_SUCCESS);
}

API cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info) {
    ENTER(IN_CONTEXT);
    if (!alive(GRAPH_EXEC, exec) || !alive(GRAPH, graph)) return CUDA_ERROR_INVALID_VALUE;
    memset(info, 0, sizeof *info);
    int same = exec->length == graph->length;
    for (size_t i = 0; same && i < graph->length; i++) same = exec->nodes[i]->kind == graph->nodes[i]->kind;
    info->result = same ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    if (!same) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    drop_nodes(exec->nodes, exec->length);
    exec->nodes = copy_nodes(graph);
    return CUDA_SUCCESS;
}

API cuGraphUpload(CUgraphExec exec, CUstream handle) {
    ENTER(IN_CONTEXT);
    if (!alive(GRAPH_EXEC, exec)) return CUDA_ERROR_INVALID_VALUE;
    return stream_of(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

API cuGraphLaunch(CUgraphExec exec, CUstream handle) {
    ENTER(IN_CONTEXT);
    if (!alive(GRAPH_EXEC, exec)) return CUDA_ERROR_INVALID_VALUE;
    Stream *stream = stream_of(handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture) return CUDA_ERROR_NOT_SUPPORTED;  // a graph within a graph: the stand-in has none
    COUNT(graph_launches, 1);
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < exec->length && !result; i++) result = submit(handle, exec->nodes[i]);
    return result;
}
