package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"

	"pegasus/cluster/claims"
)

// Reader reads the state of a cluster. It changes nothing.
type Reader struct {
	Client    kubernetes.Interface
	Namespace string // of the drivers' pods
	Selector  string // of their labels
	// Direct reads the metrics at the pods' addresses, which only the cluster's pods reach, in place of the API server's
	// proxy, which needs the right to get pods/proxy.
	Direct bool
}

// Limits of reading metrics.
const (
	readersAtOnce = 16
	readTime      = 10 * time.Second
	mostMetrics   = 64 << 20 // bytes; a domain has some 10 KiB
)

// metricsPort is the name of the port at which a driver serves metrics.
const metricsPort = "metrics"

// driverContainer is the name of the driver's container.
const driverContainer = "driver"

// Read reads the state. A driver that does not answer is part of it, and no error.
func (r *Reader) Read(ctx context.Context) (*State, error) {
	s := &State{At: time.Now()}
	err := each(ctx, "slices", func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		o.FieldSelector = resourceapi.ResourceSliceSelectorDriver + "=" + claims.DriverName
		return r.Client.ResourceV1().ResourceSlices().List(ctx, o)
	}, func(o runtime.Object) { s.Slices = append(s.Slices, *o.(*resourceapi.ResourceSlice)) })
	if err != nil {
		return nil, err
	}
	err = each(ctx, "claims", func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return r.Client.ResourceV1().ResourceClaims(metav1.NamespaceAll).List(ctx, o)
	}, func(o runtime.Object) {
		if c := o.(*resourceapi.ResourceClaim); c.Status.Allocation != nil {
			s.Claims = append(s.Claims, *c)
		}
	})
	if err != nil {
		return nil, err
	}
	s.Hosts, err = r.hosts(ctx)
	return s, err
}

// each calls f for each object of a list, which it reads in pages.
func each(ctx context.Context, of string, list pager.ListPageFunc, f func(runtime.Object)) error {
	err := pager.New(list).EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		f(o)
		return nil
	})
	if err != nil {
		return fmt.Errorf("list %s: %w", of, err)
	}
	return nil
}

// hosts reads the metrics of all drivers.
func (r *Reader) hosts(ctx context.Context) ([]HostState, error) {
	pods := map[string]*corev1.Pod{} // by node
	err := each(ctx, "pods of namespace "+r.Namespace, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		o.LabelSelector = r.Selector
		return r.Client.CoreV1().Pods(r.Namespace).List(ctx, o)
	}, func(o runtime.Object) {
		p := o.(*corev1.Pod)
		if p.Spec.NodeName == "" || container(p) == nil {
			return
		}
		if has := pods[p.Spec.NodeName]; has == nil || !running(has) && running(p) {
			pods[p.Spec.NodeName] = p
		}
	})
	if err != nil {
		return nil, err
	}
	var hosts []HostState
	for _, node := range sorted(pods) {
		hosts = append(hosts, HostState{Node: node, Pod: pods[node].Name})
	}
	var all sync.WaitGroup
	slots := make(chan struct{}, readersAtOnce)
	for i := range hosts {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			r.host(ctx, &hosts[i], pods[hosts[i].Node])
		})
	}
	all.Wait()
	return hosts, ctx.Err()
}

// container returns the driver's container, or nil.
func container(p *corev1.Pod) *corev1.Container {
	if i := slices.IndexFunc(p.Spec.Containers, func(c corev1.Container) bool { return c.Name == driverContainer }); i >= 0 {
		return &p.Spec.Containers[i]
	}
	return nil
}

// host reads the metrics of one driver.
func (r *Reader) host(ctx context.Context, h *HostState, p *corev1.Pod) {
	ports := container(p).Ports
	i := slices.IndexFunc(ports, func(p corev1.ContainerPort) bool { return p.Name == metricsPort })
	switch {
	case !running(p):
		h.Why = fmt.Sprintf("driver %s is %s", p.Name, podState(p))
		return
	case i < 0:
		h.Why = fmt.Sprintf("driver %s serves no metrics, so shares are not measured; install the chart with metrics.enabled=true", p.Name)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	from, err := r.metrics(ctx, p, ports[i].ContainerPort)
	if err == nil {
		defer from.Close()
		h.Measured, err = Read(io.LimitReader(from, mostMetrics))
	}
	if err != nil {
		text := strings.TrimSpace(err.Error())
		h.Why = fmt.Sprintf("driver %s does not answer: %s", p.Name, text[:min(len(text), 500)])
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			h.Why = fmt.Sprintf("driver %s did not answer within %v", p.Name, readTime)
		}
	}
}

// podState returns the reason for which a pod does not run, as `kubectl get` prints it.
func podState(p *corev1.Pod) string {
	if p.DeletionTimestamp != nil {
		return "Terminating"
	}
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Waiting != nil && c.State.Waiting.Reason != "" {
			return c.State.Waiting.Reason
		}
	}
	return cmp.Or(string(p.Status.Phase), "Pending")
}

// direct connects to pods, without the proxy of the environment.
var direct = &http.Client{Transport: &http.Transport{DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

func (r *Reader) metrics(ctx context.Context, p *corev1.Pod, port int32) (io.ReadCloser, error) {
	if !r.Direct {
		return r.Client.CoreV1().Pods(p.Namespace).ProxyGet("http", p.Name, strconv.Itoa(int(port)), "metrics", nil).Stream(ctx)
	}
	url := "http://" + net.JoinHostPort(p.Status.PodIP, strconv.Itoa(int(port))) + "/metrics"
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	a, err := direct.Do(q)
	if err != nil {
		return nil, err
	}
	if a.StatusCode != http.StatusOK {
		defer a.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(a.Body, 1000))
		return nil, fmt.Errorf("%s: %s", a.Status, text)
	}
	return a.Body, nil
}
