/* lmcleaner.h - online certified unlearning: a request is propagated to a correction, measured, and covered with
 * noise.
 *
 * Requests come one after another and are applied to the same weights, each with its own window and its own noise.
 * Several sets that are to be forgotten together are one request: one pass carries one v for all of them. */
#ifndef UNLEARN_LMCLEANER_H
#define UNLEARN_LMCLEANER_H

#include "base/str.h"
#include "store/chain.h"
#include "unlearn/certificate.h"
#include "unlearn/forget.h"
#include "unlearn/propagate.h"

typedef struct CleanOptions {
    PropagateOptions propagate;
    double window_share; /* above 0: the window is chosen so that at most this share is missed; where nothing
                            contracts, to the end */
    bool each_step; /* every touched update is propagated alone, as if the others stayed; the corrections are added */
    NoiseOptions noise;
    int gamma_iterations; /* of the power iteration; 0: the contraction is not measured */
} CleanOptions;

typedef struct CleanRequest {
    const char *name; /* as given */
    ForgetSet set;
    PropagateReport report;
    int64_t window;    /* K */
    double gamma;      /* NaN: not measured */
    double truncation; /* what the window may have missed at most; infinite: nobody knows */
    Noise noise;
    double noise_norm;
    const char *why_not; /* NULL: certified */
    double seconds;
    WalkSeconds spent; /* of these */
} CleanRequest;

/* Corrections of several propagations are added up, or a vector is needed besides: v of clean_request is one apart. */
bool clean_carries_apart(const CleanOptions *o, int requests);
/* Vectors as long as the model that this holds, sum and v included; and whether it asks the walk for theta. */
int clean_vectors(const CleanOptions *o, double momentum, int requests);
bool clean_looks_at_theta(const CleanOptions *o, double momentum);

/* Adds the request's correction to sum, and measures what a certificate is made of. A request without updates adds
 * nothing. v: as long as sum; NULL: sum is 0 and takes the correction itself. */
bool clean_request(const Walk *w, const CleanOptions *o, CleanRequest *r, float *sum, float *v, Err *e);
/* Adds the request's noise to the correction and says whether it is certified. */
void clean_cover(const Walk *w, const CleanOptions *o, CleanRequest *r, int number, float *sum);

/* The records of the requests of one command about that run: a line each, under a chain (audit.h reads them). */
void clean_records(Str *out, const CleanRequest *request, int n, const CleanOptions *o, const History *h);
/* Samples of removed updates that were not to be forgotten, as a JSON list: to be learned again (PROPAGATE_STEPS). */
void clean_requeue(Str *out, const CleanRequest *request, int n, const History *h, int64_t rows);

#endif
