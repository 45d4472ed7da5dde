// Pegasus-kubevirt is a hook of KubeVirt: it gives a machine the device through which its CUDA programs reach an
// accelerator. Called as onDefineDomain, it changes one definition, for KubeVirt's sidecar-shim; otherwise it serves
// virt-launcher as a sidecar.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"pegasus/cluster/kubevirt"
	"pegasus/hypervisor/kvm"
)

func main() {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	run := serve
	if filepath.Base(os.Args[0]) == "onDefineDomain" {
		run = define
	}
	if err := run(log); err != nil {
		log.Error("pegasus-kubevirt ends", "err", err)
		os.Exit(1)
	}
}

// hook returns the hook, with a flag of its own that KubeVirt does not give.
func hook() *kubevirt.Hook {
	h := new(kubevirt.Hook)
	flag.StringVar(&h.Region, "region", kvm.ContainerRegion, "the region's `file`, as this container has it")
	return h
}

// define prints a definition with the machine's region.
func define(*slog.Logger) error {
	vmi := flag.String("vmi", "", "the VirtualMachineInstance, as `JSON`")
	domain := flag.String("domain", "", "libvirt's definition, as `XML`")
	h := hook()
	flag.Parse()
	text, err := h.Define([]byte(*vmi), []byte(*domain))
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(text)
	return err
}

func serve(log *slog.Logger) error {
	socket := flag.String("socket", "/var/run/kubevirt-hooks/pegasus.sock", "`path` of the hook's socket")
	flag.String("version", "", "version of the protocol, which KubeVirt `requests`; the hook offers its own")
	h := hook()
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("argument %q: there are flags only", flag.Arg(0))
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return h.Serve(ctx, *socket, log)
}
