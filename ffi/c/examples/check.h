/* What the examples do when something goes wrong: they say what, and end. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <warpline.h>

#define PATIENCE_MS 30000

static inline void fail(const char *words)
{
    fprintf(stderr, "%s\n", words);
    exit(1);
}

/* Ends the program when a call has failed; gives its result otherwise. */
static inline int check(const char *what, int result)
{
    if (result < 0) {
        fprintf(stderr, "%s: %s (%d)\n", what, warpline_last_error(), result);
        exit(1);
    }
    return result;
}

/* The next completion, which must be a success. */
static inline struct warpline_wc next_completion(struct warpline_cq *cq)
{
    struct warpline_wc wc;
    if (!check("warpline_cq_wait", warpline_cq_wait(cq, &wc, PATIENCE_MS)))
        fail("no completion in time");
    if (wc.status != 0)
        fail(warpline_wc_status_text(wc.status));
    return wc;
}

#endif
