/* export.c - graphs as JSON. */
#include "amr/export.h"

#include "base/mem.h"

static json_t *triples_json(const Penman *p) {
    json_t *list = json_array();
    int64_t n;
    PenmanTriple *t = penman_triples(p, &n);
    for (int64_t i = 0; i < n; i++)
        json_array_append_new(
            list, json_pack("[s?, s%, s?]", t[i].source, t[i].role, (size_t)t[i].role_len, t[i].target));
    mem_free(t);
    return list;
}

json_t *amr_block_json(const AmrBlock *b, int64_t number, PenmanLayout layout) {
    json_t *j = json_pack("{s:I, s:I, s:s?, s:b, s:s?}", "block", (json_int_t)number, "line", (json_int_t)b->line,
                          "sentence", b->sentence, "valid", b->fault == NULL, "fault", b->fault);
    if (b->fault) json_object_set_new(j, "fault_line", json_integer(b->fault_line));
    if (!b->graph.n_nodes) return j;
    Str text = {0};
    json_t *meta = json_object();
    penman_print(&text, &b->graph, layout);
    for (int64_t i = 0; i < b->graph.n_meta; i++)
        json_object_set_new(meta, b->graph.meta[i].key, json_string(b->graph.meta[i].value));
    json_object_set_new(j, "metadata", meta);
    json_object_set_new(j, "top",
                        b->graph.node[0].variable ? json_string(b->graph.node[0].variable) : json_null());
    json_object_set_new(j, "triples", triples_json(&b->graph));
    json_object_set_new(j, "graph", json_string(str_text(&text)));
    str_free(&text);
    return j;
}
