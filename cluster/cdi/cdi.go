// Package cdi writes the files of the Container Device Interface by which a container runtime gives a container its
// domain: mounts of the domain's directory and of the CUDA libraries, and the environment. The container of a virtual
// machine gets mounts of the machine's region instead: it has no CUDA programs of its own.
//
// Callers: package driver.
//
// Trust boundary: only root writes the directory of the files.
package cdi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"pegasus/backend/statefile"
	"pegasus/cluster/claims"
	"pegasus/guest/setup"
	"pegasus/hypervisor/kvm"
)

const (
	class   = "claim"
	kind    = claims.DriverName + "/" + class
	version = "0.7.0" // of the interface: additionalGids
)

// Places in a container.
const (
	DomainDir  = "/run/pegasus-domain" // the directory of the domain's socket
	SocketFile = DomainDir + "/sock"
	HookFile   = "/run/pegasus-hook/onDefineDomain" // the hook of KubeVirt, in the pod of a machine
)

// libraryDirs are the directories in which the loaders of Debian, of Fedora and of other distributions look by default.
// The first also hides the library of an image with a driver of its own.
var libraryDirs = []string{"/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"}

// Host has the places of a node's files.
type Host struct {
	Domains   string // the daemon's directory of domains
	Libraries string // the directory of libcuda.so.1 and libnvidia-ml.so.1
	Hook      string // the hook of KubeVirt, a program; empty: none
	Group     uint32 // of domains' sockets; 0: every user of a container may connect
}

// DeviceID returns the name by which a runtime finds a claim's edits.
func DeviceID(claim types.UID) string { return kind + "=" + string(claim) }

// Spec returns the specification of a domain.
func (h Host) Spec(d *claims.Domain) *specs.Spec {
	return &specs.Spec{Version: version, Kind: kind,
		Annotations: map[string]string{claims.DriverName + "/claim": d.String()},
		Devices:     []specs.Device{{Name: string(d.UID), ContainerEdits: h.Edits(d)}},
	}
}

// Edits returns the changes to a container of a domain.
func (h Host) Edits(d *claims.Domain) specs.ContainerEdits {
	edits := specs.ContainerEdits{Env: []string{"PEGASUS_DOMAIN=" + d.Name(), "PEGASUS_CREDITS=" + d.Settings["credits"], "PEGASUS_MEMORY=" + d.Settings["memory"]}}
	if d.Region != nil {
		for _, m := range kvm.ContainerMounts(d.Region.Path) {
			edits.Mounts = append(edits.Mounts, mount(m.From, m.To, m.ReadOnly, "noexec"))
		}
		if h.Hook != "" {
			edits.Mounts = append(edits.Mounts, mount(h.Hook, HookFile, true))
		}
	} else {
		h.admit(&edits, d)
	}
	return edits
}

// admit makes processes of a container guests of the domain.
func (h Host) admit(edits *specs.ContainerEdits, d *claims.Domain) {
	edits.Env = append(edits.Env, "PEGASUS_SOCKET="+SocketFile)
	// The directory, not the socket: each daemon creates another socket in it.
	edits.Mounts = append(edits.Mounts, mount(filepath.Join(h.Domains, d.Name()), DomainDir, true, "noexec"))
	for _, dir := range libraryDirs {
		for _, name := range []string{setup.LibraryName, setup.MonitorName} {
			edits.Mounts = append(edits.Mounts, mount(filepath.Join(h.Libraries, name), dir+"/"+name, true))
		}
	}
	if h.Group != 0 {
		edits.AdditionalGIDs = []uint32{h.Group}
	}
}

func mount(from, to string, readOnly bool, more ...string) *specs.Mount {
	way := "rw"
	if readOnly {
		way = "ro"
	}
	return &specs.Mount{HostPath: from, ContainerPath: to, Type: "bind", Options: append([]string{way, "rbind", "nosuid", "nodev"}, more...)}
}

// Dir is a directory of specifications, of which each file is read by runtimes at any time.
type Dir string

const (
	prefix = claims.DriverName + "-" + class + "_"
	suffix = ".json"
)

func (d Dir) path(claim types.UID) string {
	return filepath.Join(string(d), prefix+string(claim)+suffix)
}

// Write writes the specification of a claim unless the file has it already, and reports whether it wrote. A runtime
// reads either the old file or the new one.
func (d Dir) Write(claim types.UID, spec *specs.Spec) (wrote bool, err error) {
	want, err := json.Marshal(spec)
	if err != nil {
		return false, err
	}
	path := d.path(claim)
	if has, err := os.ReadFile(path); err == nil && bytes.Equal(has, want) {
		return false, nil
	}
	if err := os.MkdirAll(string(d), 0o755); err != nil {
		return false, fmt.Errorf("write CDI file: %w", err)
	}
	if err := statefile.Write(path, json.RawMessage(want)); err != nil {
		return false, fmt.Errorf("write CDI file: %w", err)
	}
	return true, nil
}

// Remove removes the file of a claim, if there is one.
func (d Dir) Remove(claim types.UID) error {
	if err := os.Remove(d.path(claim)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove CDI file: %w", err)
	}
	return nil
}

// Claims returns the claims that have a file.
func (d Dir) Claims() (all []types.UID, err error) {
	entries, err := os.ReadDir(string(d))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if uid, ok := strings.CutPrefix(e.Name(), prefix); ok {
			if uid, ok = strings.CutSuffix(uid, suffix); ok {
				all = append(all, types.UID(uid))
			}
		}
	}
	return all, err
}
