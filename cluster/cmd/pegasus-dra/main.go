// Pegasus-dra is the kubelet plugin of a node: it offers the accelerators of the node's daemon to the scheduler, and
// makes a domain for each claim. With --device-plugin, for clusters without claims, it makes a domain for the devices of
// each container.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"

	"pegasus/cluster/claims"
	"pegasus/cluster/driver"
)

type options struct {
	kubeconfig, node, kubelet string
	install                   string
	credits                   int64
	group, qemu               uint
	shared                    string
	unit                      int64
	pod                       string
	metrics                   string
	usage                     time.Duration
	every                     time.Duration
	driver.Config
}

func main() {
	o := options{}
	flag.StringVar(&o.kubeconfig, "kubeconfig", "", "`file` with the address of the API server; without it, the service account of the pod")
	flag.StringVar(&o.node, "node", os.Getenv("NODE_NAME"), "`name` of the node; default: the environment variable NODE_NAME")
	flag.StringVar(&o.kubelet, "kubelet", "/var/lib/kubelet", "the kubelet's `directory`")
	flag.StringVar(&o.RuntimeDir, "runtime-dir", "/run/pegasus", "the daemon's runtime `directory`")
	flag.StringVar(&o.Libraries, "libraries", "/usr/lib/pegasus", "`directory` of the CUDA libraries, on the host")
	flag.StringVar(&o.CDI, "cdi", "/var/run/cdi", "`directory` of CDI files, on the host")
	flag.Int64Var(&o.credits, "credits", 1024, "`credits` that each accelerator without max_credits sells, 1 to 65535")
	flag.UintVar(&o.group, "socket-group", 0, "numeric `id` of the group that may connect to domains, which containers with a claim get; 0: each user of a container may connect")
	flag.StringVar(&o.shared, "region-memory", "0", "`size` of the regions of virtual machines that each accelerator sells, such as 4Gi; 0: none. The daemon needs a directory of regions")
	flag.UintVar(&o.qemu, "qemu-group", 107, "numeric `id` of the group of QEMU in the containers of virtual machines; KubeVirt's is 107")
	flag.DurationVar(&o.every, "interval", 5*time.Second, "`time` between two looks at the daemon, 100ms or more")
	flag.StringVar(&o.metrics, "metrics", "", "`address` at which to serve the daemon's metrics with the labels of claims, such as :9419; \"\": none")
	flag.DurationVar(&o.usage, "usage", 0, "write the usage of each claim to its status when it has changed, at most once in this `time`, 10s or more; 0s: never")
	flag.Int64Var(&o.unit, "device-plugin", 0, "`credits` of each device that is offered by the kubelet's device plugin API, in place of Dynamic Resource Allocation, 1 to 65535; 0: none")
	flag.StringVar(&o.pod, "pod", os.Getenv("POD"), "with --device-plugin, `namespace/name` of the pod of this program; default: the environment variable POD")
	flag.StringVar(&o.install, "install-libraries", "", "copy the CUDA libraries into a `directory` and exit")
	flag.Parse()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	klog.SetSlogLogger(log)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	o.Log = log
	if err := o.run(ctx); err != nil {
		log.Error("pegasus-dra ends", "err", err)
		os.Exit(1)
	}
}

func (o *options) check() error {
	switch {
	case flag.NArg() > 0:
		return fmt.Errorf("argument %q: there are flags only", flag.Arg(0))
	case o.node == "" && o.install == "" && o.unit == 0:
		return errors.New("--node: missing; give the name of the node, or set NODE_NAME")
	case o.credits < 1 || o.credits > 65535:
		return fmt.Errorf("--credits %d: must be 1 to 65535", o.credits)
	case o.unit < 0 || o.unit > 65535:
		return fmt.Errorf("--device-plugin %d: must be 1 to 65535, or 0", o.unit)
	case o.unit > 0 && strings.Count(o.pod, "/") != 1:
		return fmt.Errorf("--pod %q: must be the namespace/name of this program's pod, by which it recognises complete lists of pods", o.pod)
	case o.unit > 0 && (o.shared != "0" || o.usage != 0):
		return errors.New("--device-plugin: there are no claims, which --region-memory and --usage need; remove these")
	case o.every < 100*time.Millisecond:
		return fmt.Errorf("--interval %v: must be 100ms or more", o.every)
	case o.usage != 0 && o.usage < 10*time.Second:
		return fmt.Errorf("--usage %v: must be 10s or more, or 0s", o.usage)
	case o.group > 1<<32-2:
		return fmt.Errorf("--socket-group %d: must be the number of a group", o.group)
	case o.qemu > 1<<32-2:
		return fmt.Errorf("--qemu-group %d: must be the number of a group", o.qemu)
	}
	return nil
}

func (o *options) run(ctx context.Context) error {
	if err := o.check(); err != nil {
		return err
	}
	if o.install != "" {
		return driver.InstallLibraries(o.Libraries, o.install)
	}
	if o.unit > 0 {
		return o.runDevices(ctx)
	}
	client, err := o.client()
	if err != nil {
		return err
	}
	data := o.data()
	registry := filepath.Join(o.kubelet, "plugins_registry")
	for _, dir := range []string{data, registry} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	shared, err := resource.ParseQuantity(o.shared)
	if n, exact := shared.AsInt64(); err != nil || !exact || n < 0 {
		return fmt.Errorf("--region-memory %s: must be a size, such as 4Gi", o.shared)
	}
	o.Records, o.Group, o.QEMU = filepath.Join(data, "claims"), uint32(o.group), uint32(o.qemu)
	if shared.Sign() > 0 {
		if o.Hook, err = driver.InstallHook(data); err != nil {
			return err
		}
	}
	plugin := driver.NewPlugin(driver.New(o.Config), o.node)
	if o.metrics != "" {
		if err := o.serveMetrics(ctx, plugin.Driver); err != nil {
			return err
		}
	}
	helper, err := kubeletplugin.Start(ctx, plugin,
		kubeletplugin.DriverName(claims.DriverName),
		kubeletplugin.NodeName(o.node),
		kubeletplugin.KubeClient(client),
		kubeletplugin.PluginDataDirectoryPath(data),
		kubeletplugin.RegistrarDirectoryPath(registry),
	)
	if err != nil {
		return fmt.Errorf("serve the kubelet: %w", err)
	}
	defer helper.Stop()
	if err := plugin.Forget(ctx, driver.Deleted(ctx, client)); err != nil {
		o.Log.Warn("look for deleted claims", "err", err)
	}
	if o.usage > 0 {
		r := driver.Reporter{Driver: plugin.Driver, Client: client, Least: o.usage, Every: o.every}
		go r.Run(ctx)
	}
	offer := &driver.Slices{Plugin: plugin, To: helper, Credits: o.credits, Shared: shared.Value()}
	w := driver.Watcher{Driver: plugin.Driver, To: offer, Every: o.every}
	return w.Run(ctx)
}

// data returns the directory of the driver's files.
func (o *options) data() string { return filepath.Join(o.kubelet, "plugins", claims.DriverName) }

// runDevices serves the kubelet's device plugin API until ctx ends. It needs no API server.
func (o *options) runDevices(ctx context.Context) error {
	o.Records, o.Group = filepath.Join(o.data(), "devices"), uint32(o.group)
	d := driver.New(o.Config)
	if o.metrics != "" {
		if err := o.serveMetrics(ctx, d); err != nil {
			return err
		}
	}
	devices := driver.NewDevices(d, o.unit, o.credits, o.kubelet, o.pod)
	var served sync.WaitGroup
	served.Go(func() { devices.Run(ctx) })
	defer served.Wait()
	w := driver.Watcher{Driver: d, To: devices, Every: o.every}
	return w.Run(ctx)
}

// serveMetrics serves metrics until ctx ends.
func (o *options) serveMetrics(ctx context.Context, d *driver.Driver) error {
	l, err := net.Listen("tcp", o.metrics)
	if err != nil {
		return fmt.Errorf("--metrics: %w", err)
	}
	pages := http.NewServeMux()
	pages.HandleFunc("/metrics", d.Metrics)
	server := http.Server{Handler: http.TimeoutHandler(pages, 10*time.Second, "the daemon does not answer"), ReadTimeout: 5 * time.Second, WriteTimeout: 15 * time.Second, MaxHeaderBytes: 16 << 10}
	context.AfterFunc(ctx, func() { server.Close() })
	go server.Serve(l)
	return nil
}

func (o *options) client() (kubernetes.Interface, error) {
	config, err := rest.InClusterConfig()
	if o.kubeconfig != "" {
		config, err = clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("address of the API server: %w; run it in a pod, or give --kubeconfig", err)
	}
	return kubernetes.NewForConfig(config)
}
