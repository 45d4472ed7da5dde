/* Kernel profile, enabled by PEGASUS_SOFT_PROFILE. */
#ifndef PEGASUS_CORE_PROFILE_H
#define PEGASUS_CORE_PROFILE_H

/* Called by the first API calls: starts the profile. Its report goes to stderr when the program exits. */
void profile_begin(void);

#endif
