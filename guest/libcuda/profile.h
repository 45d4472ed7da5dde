/* The profile of the program's kernels, if PEGASUS_SOFT_PROFILE asks for one. */
#ifndef PEGASUS_PROFILE_H
#define PEGASUS_PROFILE_H

/* For the first calls: begins the profile, whose report goes to stderr when the program exits. */
void profile_begin(void);

#endif
