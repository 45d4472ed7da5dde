// Package kubevirt gives a machine of KubeVirt the device through which its CUDA programs reach an accelerator: it is a
// hook that changes the machine's libvirt definition before virt-launcher defines the machine.
//
// A hook runs in a sidecar of the virt-launcher pod, and serves gRPC there; or it is a program that KubeVirt's own
// sidecar calls. Both forms change the definition in the same way.
//
// Callers: pegasus-kubevirt.
//
// Trust boundary: virt-launcher is trusted. The annotations are those of any user that may create machines; the
// machine's region is bounded by the claim, not by them.
package kubevirt

import (
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"

	"pegasus/cluster/claims"
	"pegasus/hypervisor/kvm"
)

// Region is the place of a machine's region in the virt-launcher pod. The pod has one machine, so the name is the same
// in each.
const Region = "/dev/shm/pegasus/machine"

// Annotations of a VirtualMachineInstance.
const (
	MemoryAnnotation = claims.DriverName + "/region"        // size of the region, such as 512Mi
	DeviceAnnotation = claims.DriverName + "/region-device" // nvdimm, the default, or ivshmem
)

// machine is the part of a VirtualMachineInstance that the hook reads.
type machine struct {
	Metadata struct {
		Namespace, Name string
		Annotations     map[string]string
	}
	Spec struct {
		EvictionStrategy *string
	}
}

// Define returns the definition with the machine's region. A machine without the annotation for its size stays as it
// is.
func Define(vmi, definition []byte) ([]byte, error) {
	var m machine
	if err := json.Unmarshal(vmi, &m); err != nil {
		return nil, fmt.Errorf("VirtualMachineInstance: %w", err)
	}
	text, err := m.define(definition)
	if err != nil {
		return nil, fmt.Errorf("machine %s/%s: %w", m.Metadata.Namespace, m.Metadata.Name, err)
	}
	return text, nil
}

func (m *machine) define(definition []byte) ([]byte, error) {
	size, ok := m.Metadata.Annotations[MemoryAnnotation]
	if !ok {
		return definition, nil
	}
	a := kvm.Attachment{Region: Region, Device: kvm.NVDIMM}
	if d, ok := m.Metadata.Annotations[DeviceAnnotation]; ok {
		a.Device = kvm.Device(d)
	}
	q, err := resource.ParseQuantity(size)
	if n, exact := q.AsInt64(); err != nil || !exact || n <= 0 {
		return nil, fmt.Errorf("annotation %s: %q: must be a size, such as 512Mi", MemoryAnnotation, size)
	} else {
		a.Bytes = uint64(n)
	}
	if s := m.Spec.EvictionStrategy; s == nil || *s != "None" {
		return nil, errors.New("spec.evictionStrategy: must be None: a machine with a region can't be migrated")
	}
	d, err := kvm.Parse(definition)
	if err != nil {
		return nil, fmt.Errorf("definition: %w", err)
	}
	return d.WithRegion(a)
}
