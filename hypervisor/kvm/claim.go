package kvm

import (
	"context"

	"pegasus/hypervisor"
)

// Claim makes a directory of regions this process's until release is called or the process ends. While another has it,
// Claim tries again until ctx ends, and returns hypervisor.ErrServed then.
func Claim(ctx context.Context, dir string) (release func(), err error) {
	if err := MakeDir(dir); err != nil {
		return nil, err
	}
	return hypervisor.Claim(ctx, dir, "regions")
}
