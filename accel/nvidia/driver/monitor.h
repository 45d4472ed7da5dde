/* Values from libnvidia-ml.so.1, NVIDIA's monitoring library, which needs no context and covers all processes. */
#ifndef PEGASUS_NVIDIA_MONITOR_H
#define PEGASUS_NVIDIA_MONITOR_H

/* A field is 0 if the library doesn't report it. */
struct sight {
	unsigned long long used;       /* bytes of the device's memory, by all processes */
	unsigned busy;                 /* percent of the last sample period in which kernels ran */
	unsigned generation, lanes;    /* of PCI Express, at most */
};

/* Reads the values of the device with a UUID; returns 0 if the library is missing, or doesn't report such a device. */
int watch_device(const char *library, const char *uuid, struct sight *out);

#endif
