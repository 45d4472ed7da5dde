// Package kubevirt gives a machine of KubeVirt the device through which its CUDA programs reach an accelerator: it is a
// hook that changes the machine's libvirt definition before virt-launcher defines the machine.
//
// A hook runs in a sidecar of the virt-launcher pod, and serves gRPC there; or it is a program that KubeVirt's own
// sidecar calls. Both forms change the definition in the same way.
//
// Callers: pegasus-kubevirt.
//
// Trust boundary: virt-launcher is trusted. The annotations are those of any user that may create machines; the
// machine's region is that of the claim, with which they must agree.
package kubevirt

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"k8s.io/apimachinery/pkg/api/resource"

	"pegasus/cluster/claims"
	"pegasus/hypervisor/kvm"
)

// Annotations of a VirtualMachineInstance.
const (
	MemoryAnnotation = claims.DriverName + "/region"        // size of the region, such as 512Mi
	ClaimAnnotation  = claims.DriverName + "/claim"         // name of the claim in spec.resourceClaims; it may be missing if there is one
	DeviceAnnotation = claims.DriverName + "/region-device" // nvdimm, the default, or ivshmem
)

// Hook changes definitions.
type Hook struct {
	// Region is the region's file as a container of the virt-launcher pod has it that the claim is mounted into: the
	// hook's own container is such a one. The definition has the place in the container of libvirt.
	Region string
}

// machine is the part of a VirtualMachineInstance that the hook reads.
type machine struct {
	Metadata struct {
		Namespace, Name string
		Annotations     map[string]string
	}
	Spec struct {
		EvictionStrategy *string
		ResourceClaims   []struct {
			Name                      string
			ResourceClaimName         *string
			ResourceClaimTemplateName *string
		}
	}
}

// Define returns the definition with the machine's region. A machine without the annotation for its size stays as it
// is.
func (h Hook) Define(vmi, definition []byte) ([]byte, error) {
	var m machine
	if err := json.Unmarshal(vmi, &m); err != nil {
		return nil, fmt.Errorf("VirtualMachineInstance: %w", err)
	}
	if _, ok := m.Metadata.Annotations[MemoryAnnotation]; !ok {
		return definition, nil
	}
	text, err := h.define(&m, definition)
	if err != nil {
		return nil, fmt.Errorf("machine %s/%s: %w", m.Metadata.Namespace, m.Metadata.Name, err)
	}
	return text, nil
}

func (h Hook) define(m *machine, definition []byte) ([]byte, error) {
	a, err := m.attachment()
	if err != nil {
		return nil, err
	}
	if s := m.Spec.EvictionStrategy; s == nil || *s != "None" {
		return nil, errors.New("spec.evictionStrategy: must be None: a machine with a region can't be migrated")
	}
	if err := m.checkClaim(); err != nil {
		return nil, err
	}
	if err := h.checkRegion(a.Bytes); err != nil {
		return nil, err
	}
	d, err := kvm.Parse(definition)
	if err != nil {
		return nil, fmt.Errorf("definition: %w", err)
	}
	return d.WithRegion(a)
}

// attachment returns the region that the annotations request.
func (m *machine) attachment() (kvm.Attachment, error) {
	a := kvm.Attachment{Region: kvm.ContainerRegion, Device: kvm.NVDIMM, Served: true}
	if d, ok := m.Metadata.Annotations[DeviceAnnotation]; ok {
		a.Device = kvm.Device(d)
	}
	size := m.Metadata.Annotations[MemoryAnnotation]
	q, err := resource.ParseQuantity(size)
	n, exact := q.AsInt64()
	if err != nil || !exact || n <= 0 {
		return a, fmt.Errorf("annotation %s: %q: must be a size, such as 512Mi", MemoryAnnotation, size)
	}
	a.Bytes = uint64(n)
	return a, nil
}

// checkClaim returns an error unless the machine has a claim of its own, by a template: a claim that is named directly
// can be that of several machines, which would write to one region.
func (m *machine) checkClaim() error {
	name, all := m.Metadata.Annotations[ClaimAnnotation], m.Spec.ResourceClaims
	if name == "" && len(all) != 1 {
		return fmt.Errorf("spec.resourceClaims: has %d claims, and annotation %s names none: name the claim with the region", len(all), ClaimAnnotation)
	}
	for _, c := range all {
		switch {
		case name != "" && c.Name != name:
		case c.ResourceClaimTemplateName == nil || *c.ResourceClaimTemplateName == "":
			return fmt.Errorf("spec.resourceClaims: claim %q: must have a resourceClaimTemplateName: a claim that machines share would give them one region", c.Name)
		default:
			return nil
		}
	}
	return fmt.Errorf("annotation %s: %q: spec.resourceClaims has no claim of that name", ClaimAnnotation, name)
}

// checkRegion returns an error unless the claim's region is mounted, with the size that the annotation gives.
func (h Hook) checkRegion(bytes uint64) error {
	info, err := os.Lstat(h.Region)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("region %s: not mounted into the hook's container: its claim must have the capacity %s, and the containers compute and hook-sidecar-* of the virt-launcher pod must name it in resources.claims (the admission policy of the chart, with machines.enabled, adds that)",
			h.Region, claims.Shared)
	case err != nil:
		return fmt.Errorf("region: %w", err)
	case !info.Mode().IsRegular():
		return fmt.Errorf("region %s: not a file, but %s", h.Region, info.Mode())
	case uint64(info.Size()) != bytes:
		return fmt.Errorf("annotation %s: %d bytes: must be the capacity %s of the claim, %d bytes", MemoryAnnotation, bytes, claims.Shared, info.Size())
	}
	return nil
}
