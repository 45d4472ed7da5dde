/* What is asked of libnvidia-ml.so.1, NVIDIA's library for tools that watch: it needs no context, and sees all processes. */
#ifndef PEGASUS_NVIDIA_MONITOR_H
#define PEGASUS_NVIDIA_MONITOR_H

/* Zeros where the library doesn't say. */
struct sight {
	unsigned long long used;       /* bytes of the device's memory, by anybody */
	unsigned busy;                 /* percent of the last moments in which kernels ran */
	unsigned generation, lanes;    /* of PCI Express, at most */
};

/* Looks at the device with a UUID; 0 if there is no such library, or it knows no such device. */
int watch_device(const char *library, const char *uuid, struct sight *out);

#endif
