// Package slices describes the accelerators of a node as devices of a ResourceSlice: pure functions.
//
// Callers: package driver.
//
// Trust boundary: the daemon is trusted.
package slices

import (
	"fmt"
	"regexp"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"pegasus/backend/control"
	"pegasus/cluster/claims"
	"pegasus/vcpu"
)

// Node describes a node.
type Node struct {
	Release string // of the daemon
	CUDA    string // version that its library reports
	Credits int64  // that an accelerator without max_credits sells
	Shared  int64  // bytes of regions of virtual machines that each accelerator sells; 0: none
	// Declared has the credits of the domains that the daemon's configuration ties to an accelerator, which are not sold.
	Declared map[string]int64
	// Away is the reason for which the daemon does not answer; empty: it does. The devices are tainted then.
	Away      string
	AwaySince metav1.Time
}

// AwayTaint is the key of the taint of devices whose daemon does not answer.
const AwayTaint = claims.DriverName + "/daemon-away"

// Defaults and least values of the capacities that a claim requests. The step of memory is the page of a GPU.
var (
	defaultCredits = resource.MustParse("256")
	defaultMemory  = resource.MustParse("256Mi")
	memoryStep     = resource.MustParse("2Mi")
	one            = resource.MustParse("1")
	none           = *size(0)
)

// Devices returns a device for each accelerator whose name can be a device's. The others are in left, each with the
// reason.
func Devices(all []control.Accelerator, node Node) (devices []resourceapi.Device, left []string) {
	for i := range all {
		a := &all[i]
		if !label.MatchString(a.Name) {
			left = append(left, a.Name+": the name of a device must be a DNS label (small letters, digits and -, at most 63); rename the accelerator")
			continue
		}
		credits := node.Sold(a)
		if credits <= 0 {
			left = append(left, fmt.Sprintf("%s: the domains of the configuration that are tied to it have %d credits, all of its max_credits = %d; raise it", a.Name, node.Declared[a.Name], a.MaxCredits))
			continue
		}
		devices = append(devices, device(a, credits, node))
	}
	return devices, left
}

// Sold returns the credits that an accelerator sells; 0 or less: none.
func (n *Node) Sold(a *control.Accelerator) int64 {
	if a.MaxCredits == 0 {
		return n.Credits
	}
	return int64(a.MaxCredits) - n.Declared[a.Name]
}

var label = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

func device(a *control.Accelerator, credits int64, node Node) resourceapi.Device {
	d := resourceapi.Device{
		Name:                     a.Name,
		AllowMultipleAllocations: ptr.To(true),
		Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
			"type": text(a.Type), "model": text(a.Device), "policy": text(a.Policy), "mode": text(a.Mode), "release": text(node.Release),
			"cuda": {VersionValue: ptr.To(semantic(node.CUDA))},
		},
		Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{
			claims.Credits: {Value: *number(credits), RequestPolicy: span(least(defaultCredits, credits), one, *number(min(credits, int64(vcpu.MaxCredits))), one)},
			claims.Memory:  {Value: *size(a.Memory), RequestPolicy: span(least(defaultMemory, int64(a.Memory)), memoryStep, floor(a.Memory), memoryStep)},
			claims.Domains: {Value: *number(int64(a.MaxDomains)), RequestPolicy: &resourceapi.CapacityRequestPolicy{
				Default: ptr.To(one), ValidValues: []resource.Quantity{one}}},
		},
	}
	if node.Shared > 0 {
		d.Capacity[claims.Shared] = resourceapi.DeviceCapacity{Value: floor(uint64(node.Shared)), RequestPolicy: span(none, none, floor(uint64(node.Shared)), memoryStep)}
	}
	if a.UUID != "" { // a daemon of an earlier release reports none
		d.Attributes["uuid"] = text(a.UUID)
	}
	if node.Away != "" {
		d.Taints = []resourceapi.DeviceTaint{{Key: AwayTaint, Effect: resourceapi.DeviceTaintEffectNoSchedule, TimeAdded: &node.AwaySince}}
	}
	return d
}

func span(def, min, max, step resource.Quantity) *resourceapi.CapacityRequestPolicy {
	return &resourceapi.CapacityRequestPolicy{Default: &def, ValidRange: &resourceapi.CapacityRequestPolicyRange{Min: &min, Max: &max, Step: &step}}
}

func number(n int64) *resource.Quantity { return resource.NewQuantity(n, resource.DecimalSI) }

func size(n uint64) *resource.Quantity { return resource.NewQuantity(int64(n), resource.BinarySI) }

// floor returns a memory size rounded down to the step.
func floor(n uint64) resource.Quantity {
	step := uint64(memoryStep.Value())
	return *size(n / step * step)
}

func least(q resource.Quantity, most int64) resource.Quantity {
	if q.Value() <= most {
		return q
	}
	if q.Format == resource.BinarySI {
		return floor(uint64(most))
	}
	return *number(most)
}

// text returns an attribute of at most 64 bytes, the limit of the API.
func text(s string) resourceapi.DeviceAttribute {
	return resourceapi.DeviceAttribute{StringValue: ptr.To(s[:min(len(s), 64)])}
}

// semantic returns a version in the form of semver, which attributes require.
func semantic(version string) string {
	for strings.Count(version, ".") < 2 {
		version += ".0"
	}
	return version
}
