// Package claims translates allocated claims into domains: pure functions.
//
// Callers: package driver.
//
// Trust boundary: the allocation is the scheduler's, the configuration in it any user's. Plan returns an error for what
// the driver does not prepare.
package claims

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"pegasus/cluster/parameters"
	"pegasus/hypervisor/kvm"
)

// DriverName is the name of the driver, and the group of its API.
const DriverName = "pegasus.dev"

// Holder is the holder of the leases that the driver has. A domain with such a lease is the driver's.
const Holder = DriverName

// The capacities that a claim consumes.
const (
	Credits = "credits" // a share of the accelerator
	Memory  = "memory"  // device memory
	Domains = "domains" // seats on the accelerator
	Shared  = "region"  // memory of the host that a virtual machine shares; 0: the claim is for containers
)

// Domain is the domain of a claim, or of units. The driver stores it as JSON until the claim is unprepared.
type Domain struct {
	Namespace string            `json:"namespace"` // of the claim
	Claim     string            `json:"claim"`     // its name
	UID       types.UID         `json:"uid"`       // of the claim
	Request   string            `json:"request"`   // the request that the device satisfies
	Pool      string            `json:"pool"`
	Device    string            `json:"device"` // the accelerator
	Share     *types.UID        `json:"share,omitempty"`
	Settings  map[string]string `json:"settings"`         // spelled as in the daemon's configuration
	Region    *Region           `json:"region,omitempty"` // nil: the claim is for containers
	Pods      []string          `json:"pods,omitempty"`   // that the claim is reserved for, or that have the units
	Units     []string          `json:"units,omitempty"`  // devices of the kubelet's device plugin API; nil: the domain is a claim's
	Init      bool              `json:"init,omitempty"`   // the kubelet does not list the units: they are an init container's
	Over      bool              `json:"over,omitempty"`   // the kubelet has allocated the units anew
}

// Region is the memory that the virtual machine of a claim shares with the host.
type Region struct {
	Bytes uint64 `json:"bytes"`
	Path  string `json:"path"` // the driver's, from before the region exists
}

// Name returns the name of a claim's domain.
func Name(claim types.UID) string { return "k8s-" + string(claim) }

// Name returns the domain's name.
func (d *Domain) Name() string { return Name(d.UID) }

// String identifies the claim or the units.
func (d *Domain) String() string {
	if len(d.Units) > 0 {
		return strings.Join(d.Units, ",")
	}
	return d.Namespace + "/" + d.Claim
}

// SameAllocation reports whether two domains are of the same allocation of a claim.
func (d *Domain) SameAllocation(o *Domain) bool {
	return d.UID == o.UID && d.Pool == o.Pool && d.Device == o.Device && d.Request == o.Request &&
		(d.Share == nil) == (o.Share == nil) && (d.Share == nil || *d.Share == *o.Share)
}

// Pod returns the only pod that the claim is reserved for, "" if there are several.
func (d *Domain) Pod() string {
	if len(d.Pods) != 1 {
		return ""
	}
	return d.Pods[0]
}

// Plan returns the domain of an allocated claim. Sockets gives the settings of each domain's socket.
func Plan(claim *resourceapi.ResourceClaim, sockets map[string]string) (*Domain, error) {
	if claim.Status.Allocation == nil {
		return nil, fmt.Errorf("claim %s/%s: not allocated", claim.Namespace, claim.Name)
	}
	devices := claim.Status.Allocation.Devices
	result, err := only(devices.Results)
	if err != nil {
		return nil, fmt.Errorf("claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	d := &Domain{
		Namespace: claim.Namespace, Claim: claim.Name, UID: claim.UID,
		Request: result.Request, Pool: result.Pool, Device: result.Device, Share: result.ShareID,
		Settings: map[string]string{"accelerator": result.Device},
	}
	d.Pods = pods(claim)
	maps.Copy(d.Settings, sockets)
	if err := d.consume(result.ConsumedCapacity); err != nil {
		return nil, fmt.Errorf("claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	if err := d.share(result.ConsumedCapacity); err != nil {
		return nil, fmt.Errorf("claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	if err := d.configure(devices.Config); err != nil {
		return nil, fmt.Errorf("claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return d, nil
}

// pods returns the pods that a claim is reserved for.
func pods(claim *resourceapi.ResourceClaim) (names []string) {
	for _, consumer := range claim.Status.ReservedFor {
		if consumer.Resource == "pods" {
			names = append(names, consumer.Name)
		}
	}
	return names
}

// OneMachine returns an error for a claim with a region that is reserved for several pods: two machines can't share a
// region.
func OneMachine(claim *resourceapi.ResourceClaim, region bool) error {
	if all := pods(claim); region && len(all) > 1 {
		return fmt.Errorf("claim %s/%s: capacity %s: it is reserved for %d pods (%s), and a region is one machine's; name a template (resourceClaimTemplateName), which gives each machine a claim",
			claim.Namespace, claim.Name, Shared, len(all), strings.Join(all, ", "))
	}
	return nil
}

// only returns the only device that is the driver's. A process has one accelerator, so a domain has.
func only(results []resourceapi.DeviceRequestAllocationResult) (r resourceapi.DeviceRequestAllocationResult, err error) {
	var ours []resourceapi.DeviceRequestAllocationResult
	var names []string
	for _, r := range results {
		if r.Driver == DriverName {
			ours = append(ours, r)
			names = append(names, r.Request+" → "+r.Device)
		}
	}
	switch {
	case len(ours) == 0:
		return r, fmt.Errorf("it has no device of %s", DriverName)
	case len(ours) > 1:
		return r, fmt.Errorf("it has %d devices (%s), and a domain has one accelerator; request one device, and claim each further one for a container of its own",
			len(ours), strings.Join(names, ", "))
	case ours[0].AdminAccess != nil && *ours[0].AdminAccess:
		return r, fmt.Errorf("request %s: adminAccess: %s has no such access; remove it", ours[0].Request, DriverName)
	}
	return ours[0], nil
}

// consume sets the settings that follow from the consumed capacity, which the scheduler has counted.
func (d *Domain) consume(consumed map[resourceapi.QualifiedName]resource.Quantity) error {
	for _, name := range []string{Credits, Memory} {
		q, ok := consumed[resourceapi.QualifiedName(name)]
		if !ok {
			return fmt.Errorf("the allocation has no consumed capacity %q: the cluster needs the feature DRAConsumableCapacity, on by default since Kubernetes 1.36", name)
		}
		n, exact := q.AsInt64()
		if !exact || n <= 0 {
			return fmt.Errorf("capacity %s = %s: must be a whole number above 0", name, q.String())
		}
		switch name {
		case Credits:
			d.Settings["credits"] = strconv.FormatInt(n, 10)
		case Memory:
			d.Settings["memory"] = strconv.FormatInt(n, 10)
			d.Settings["memory_guarantee"] = strconv.FormatInt(n, 10)
		}
	}
	return nil
}

// share sets the region of a claim for a virtual machine.
func (d *Domain) share(consumed map[resourceapi.QualifiedName]resource.Quantity) error {
	q := consumed[Shared]
	if q.IsZero() {
		return nil
	}
	n, exact := q.AsInt64()
	if !exact || n < 0 {
		return fmt.Errorf("capacity %s = %s: must be a whole number of bytes", Shared, q.String())
	}
	if err := kvm.CheckSize(uint64(n)); err != nil {
		return fmt.Errorf("capacity %s = %s: %w", Shared, q.String(), err)
	}
	d.Region = &Region{Bytes: uint64(n)}
	return nil
}

// configure adds the settings of the opaque configurations. The allocation has those of the class first; a later one
// replaces the fields that it gives.
func (d *Domain) configure(all []resourceapi.DeviceAllocationConfiguration) error {
	consumed := number(d.Settings["memory"])
	for _, c := range all {
		if c.Opaque == nil || c.Opaque.Driver != DriverName || !applies(c.Requests, d.Request) {
			continue
		}
		from := parameters.Claim
		if c.Source == resourceapi.AllocationConfigSourceClass {
			from = parameters.Class
		}
		settings, err := parameters.Read(c.Opaque.Parameters.Raw, from)
		if err != nil {
			return err
		}
		maps.Copy(d.Settings, settings)
	}
	if guarantee := number(d.Settings["memory_guarantee"]); guarantee > consumed {
		return fmt.Errorf("field memoryGuarantee: %d bytes: must be at most the claim's capacity memory, %d bytes, of which the scheduler has counted no more", guarantee, consumed)
	}
	if quota := number(d.Settings["memory"]); quota < consumed {
		return fmt.Errorf("field memoryQuota: %d bytes: must be at least the claim's capacity memory, %d bytes", quota, consumed)
	}
	return nil
}

func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// applies reports whether a configuration with a list of requests is for a request. The request of an allocation may be
// main/subrequest, and the list may name either.
func applies(requests []string, request string) bool {
	return len(requests) == 0 || slices.Contains(requests, request) || slices.Contains(requests, resourceclaim.BaseRequestRef(request))
}
