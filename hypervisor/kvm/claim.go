package kvm

import (
	"context"

	"pegasus/hypervisor"
)

// Claim locks a directory of regions for this process until release is called or the process ends. While another
// process holds the lock, Claim retries until ctx ends, and then returns hypervisor.ErrServed.
func Claim(ctx context.Context, dir string) (release func(), err error) {
	if err := MakeDir(dir); err != nil {
		return nil, err
	}
	return hypervisor.Claim(ctx, dir, "regions")
}
