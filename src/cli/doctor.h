/* doctor.h - what `snug doctor` finds out, between finding it and showing it. */
#ifndef CLI_DOCTOR_H
#define CLI_DOCTOR_H

#include <jansson.h>

#include "base/process.h"
#include "exec/measure.h"
#include "obs/sensors.h"
#include "store/machinefile.h"

typedef struct DoctorHost {
    char processor[96];
    int cores;                                         /* this process may use */
    int machine_cores;                                 /* the machine has */
    double load;                                       /* of the last minute, before anything is measured */
    int64_t memory_bytes, available_bytes, disk_bytes; /* disk: free here */
    bool grouped;                                      /* a control group's limit decides */
    SensorRoom room;                                   /* what this process may take, and which limit decides */
    ProcessLimits limits;
    double file_write, file_read; /* bytes per second in this folder; 0: not measured */
} DoctorHost;

typedef struct DoctorDevice {
    char device[24]; /* as --device takes it */
    Machine m;       /* with the rates found */
    DeviceFacts facts;
    double f32_flops, bf16_flops; /* one large product */
    MeasuredCopies copies;
    MeasuredLoad load;
    MeasuredExtras extras;
    int64_t planned_bytes; /* of the host: the largest of the measurements and the process itself */
    int64_t code_bytes;    /* device bytes that came with the kernels used; -1: not known */
    MachineChoice *choice; /* owns */
    int64_t n_choices;
    double seconds; /* all of it took */
} DoctorDevice;

void doctor_host(DoctorHost *h, bool quick);
bool doctor_device(DoctorDevice *d, Backend *b, const char *device, bool quick, Err *e);
void doctor_device_free(DoctorDevice *d);

/* doctor_show.c */
void doctor_show_host(Str *out, const DoctorHost *h);
void doctor_show_device(Str *out, const DoctorDevice *d);
json_t *doctor_host_json(const DoctorHost *h);
json_t *doctor_device_json(const DoctorDevice *d);

#endif
