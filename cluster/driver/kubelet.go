package driver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"pegasus/cluster/claims"
	"pegasus/cluster/units"
)

// inUse returns the pods by the units that they have, as the kubelet lists them. The list is complete if it has the
// driver's own pod.
func (s *Devices) inUse(ctx context.Context) (by pods, complete bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c, err := grpc.NewClient("unix:"+filepath.Join(s.kubelet, "pod-resources", "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, false, fmt.Errorf("list the pods of the kubelet: %w", err)
	}
	defer c.Close()
	list, err := podresources.NewPodResourcesListerClient(c).List(ctx, new(podresources.ListPodResourcesRequest), grpc.MaxCallRecvMsgSize(16<<20))
	if err != nil {
		return nil, false, fmt.Errorf("list the pods of the kubelet: %w", err)
	}
	by = pods{}
	for _, p := range list.GetPodResources() {
		complete = complete || p.GetNamespace()+"/"+p.GetName() == s.pod
		for _, c := range p.GetContainers() {
			for _, devices := range c.GetDevices() {
				if devices.GetResourceName() != units.Resource(s.credits) {
					continue
				}
				for _, id := range devices.GetDeviceIds() {
					by[id] = pod{p.GetNamespace(), p.GetName()}
				}
			}
		}
	}
	return by, complete, nil
}

// kubeletPoll is the time between two looks at the kubelet's socket, which a kubelet that starts makes anew.
const kubeletPoll = time.Second

// Run serves the kubelet from the daemon's first answer until ctx ends. It registers again with each kubelet.
func (s *Devices) Run(ctx context.Context) {
	if divided, _, first := s.offered(); divided == nil {
		select {
		case <-ctx.Done():
		case <-first:
		}
	}
	tick := time.NewTicker(kubeletPoll)
	defer tick.Stop()
	for noted := ""; ctx.Err() == nil; {
		text := ""
		if err := s.serve(ctx, tick.C); err != nil {
			text = err.Error()
		}
		if text != "" && text != noted {
			s.driver.log.Warn("serve the kubelet", "err", text)
		}
		noted = text
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// serve serves one kubelet: it returns when there is another, or an error if the kubelet can't be reached.
func (s *Devices) serve(ctx context.Context, tick <-chan time.Time) error {
	dir := filepath.Join(s.kubelet, "device-plugins")
	kubelet, own := filepath.Join(dir, filepath.Base(deviceplugin.KubeletSocket)), filepath.Join(dir, claims.DriverName+".sock")
	with, err := os.Stat(kubelet)
	if err != nil {
		return err
	}
	if err := os.Remove(own); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a plugin that was killed
		return err
	}
	l, err := net.Listen("unix", own)
	if err != nil {
		return err
	}
	at, err := os.Stat(own)
	if err != nil {
		l.Close()
		return err
	}
	g := grpc.NewServer()
	deviceplugin.RegisterDevicePluginServer(g, s)
	defer g.Stop() // ends the streams of ListAndWatch, and removes the socket
	go g.Serve(l)
	if err := s.register(ctx, kubelet, filepath.Base(own)); err != nil {
		return err
	}
	s.driver.log.Info("registered with the kubelet", "resource", units.Resource(s.credits))
	for same(kubelet, with) && same(own, at) {
		select {
		case <-ctx.Done():
			return nil
		case <-tick:
		}
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // the kubelet has removed it, or another plugin has its name
	return nil
}

// same reports whether a file is the one that it was. A file made anew may have the number of the one before.
func same(path string, was fs.FileInfo) bool {
	is, err := os.Stat(path)
	return err == nil && os.SameFile(is, was) && is.ModTime().Equal(was.ModTime())
}

// register announces the plugin's socket to the kubelet.
func (s *Devices) register(ctx context.Context, kubelet, endpoint string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	c, err := grpc.NewClient("unix:"+kubelet, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("register with the kubelet: %w", err)
	}
	defer c.Close()
	options, _ := s.GetDevicePluginOptions(ctx, nil)
	_, err = deviceplugin.NewRegistrationClient(c).Register(ctx, &deviceplugin.RegisterRequest{
		Version: deviceplugin.Version, Endpoint: endpoint, ResourceName: units.Resource(s.credits), Options: options})
	if err != nil {
		return fmt.Errorf("register with the kubelet: %w", err)
	}
	return nil
}
